//! `cargo xtask tidy`: the house rules that a machine can check.
//!
//! A rule looks at the whole [`Tree`] and reports [`Problem`]s, each with the place and the fix. Rules that
//! compare a document with code say so in a note, and do nothing, as long as one of the two does not exist.

mod baseline;
mod crates;
mod documents;
mod links;
mod mask;
mod size;
mod tree;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::shell;
pub(crate) use tree::Tree;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// The tree to check, instead of this workspace
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Something that a rule has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// How bad it is.
    pub(crate) level: Level,
    /// Path from the root of the tree.
    pub(crate) path: String,
    /// Line, counted from 1; 0 for the whole file.
    pub(crate) line: usize,
    /// What is wrong, and the fix.
    pub(crate) message: String,
}

/// Whether it fails the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Only said: a rule that does not apply yet.
    Note,
    /// Said, and to be cared for soon.
    Warning,
    /// Fails the check.
    Error,
}

impl Problem {
    pub(crate) fn error(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Problem { level: Level::Error, path: path.into(), line, message: message.into() }
    }

    pub(crate) fn warning(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Problem { level: Level::Warning, ..Problem::error(path, line, message) }
    }

    pub(crate) fn note(path: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { level: Level::Note, ..Problem::error(path, 0, message) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        match self.line {
            0 => write!(f, "{level}: {}: {}", self.path, self.message),
            line => write!(f, "{level}: {}:{line}: {}", self.path, self.message),
        }
    }
}

/// The rules, in the order in which they speak.
const RULES: &[fn(&Tree) -> Vec<Problem>] =
    &[size::check, baseline::check, words::check, crates::check, links::check, documents::scripts, documents::keys];

pub(crate) fn run(args: &Args) -> Result<()> {
    let tree = Tree::read(&args.root.clone().unwrap_or_else(shell::root))?;
    let problems = check(&tree);
    for problem in &problems {
        eprintln!("{problem}");
    }
    let errors = problems.iter().filter(|problem| problem.level == Level::Error).count();
    if errors > 0 {
        bail!("{errors} house rule{} broken; each line above says the fix", if errors == 1 { " is" } else { "s are" });
    }
    Ok(())
}

/// All that the rules have to say about a tree.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    RULES.iter().flat_map(|rule| rule(tree)).collect()
}
