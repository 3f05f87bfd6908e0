//! A file fits in a head, a script on a screen. Functions are clippy's (`too_many_lines`, 70 by `clippy.toml`).

use super::baseline::{self, FILE_LINES};
use super::{Problem, Tree};

const RUST_SOON: usize = 300;
const RUST_MOST: usize = 500;
const LUA_MOST: usize = 120;

/// How many lines this file may have, if its kind has a limit.
pub(crate) fn most(path: &str) -> Option<usize> {
    match path.rsplit_once('.') {
        Some((_, "rs")) => Some(RUST_MOST),
        Some((_, "lua")) => Some(LUA_MOST),
        _ => None,
    }
}

/// Counts lines, blank ones and comments too: a reader has to scroll over them all the same.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let excused = |path: &str| baseline::entries(tree).any(|entry| entry.rule == FILE_LINES && entry.path == path);
    let mut problems = Vec::new();
    for file in &tree.files {
        let (path, lines) = (&file.path, file.text.lines().count());
        let Some(most) = most(path) else { continue };
        if lines > most && !excused(path) {
            let fix = "split it by what it knows, or name it with a reason in xtask/tidy-baseline.txt";
            problems.push(Problem::error(path, 0, format!("{lines} lines, {most} are allowed; {fix}")));
        } else if path.ends_with(".rs") && lines > RUST_SOON {
            let message = format!("{lines} lines, {RUST_SOON} are the aim; split it before it grows");
            problems.push(Problem::warning(path, 0, message));
        }
    }
    problems
}
