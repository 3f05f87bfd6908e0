//!
mod keys;
