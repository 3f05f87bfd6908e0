//! `xtask/tidy-baseline.txt`: the named exceptions, one a line: `RULE PATH REASON`.
//!
//! An exception without a reason, for nothing, or in the code but not on the list, is an error: the list is what a
//! reviewer reads, and it only shrinks unless somebody argues.

use super::{Problem, Tree, size};

/// The file.
pub(crate) const PATH: &str = "xtask/tidy-baseline.txt";
/// A file with more lines than its kind may have.
pub(crate) const FILE_LINES: &str = "file-lines";
/// A file with functions that are excused from clippy's `too_many_lines` by an attribute.
pub(crate) const FUNCTION_LINES: &str = "function-lines";

/// One exception.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'text> {
    pub(crate) line: usize,
    pub(crate) rule: &'text str,
    pub(crate) path: &'text str,
    pub(crate) reason: &'text str,
}

/// The exceptions, without comments and blank lines.
pub(crate) fn entries(tree: &Tree) -> impl Iterator<Item = Entry<'_>> {
    let lines = tree.baseline.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(line, text)| {
        let (rule, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (path, reason) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        Entry { line, rule, path, reason: reason.trim() }
    })
}

/// Compares the list with the tree.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems: Vec<Problem> = entries(tree).filter_map(|entry| wrong(tree, &entry)).collect();
    for file in tree.ending(".rs") {
        let listed = entries(tree).any(|entry| entry.rule == FUNCTION_LINES && entry.path == file.path);
        if let Some(line) = excuse(&file.code)
            && !listed
        {
            let fix = format!("split the function, or add `{FUNCTION_LINES} {} REASON` to {PATH}", file.path);
            problems.push(Problem::error(&file.path, line, format!("excused from too_many_lines; {fix}")));
        }
    }
    problems
}

fn wrong(tree: &Tree, entry: &Entry<'_>) -> Option<Problem> {
    let error = |message: String| Some(Problem::error(PATH, entry.line, message));
    let Some(file) = tree.file(entry.path) else {
        return error(format!("{} does not exist; remove the line", entry.path));
    };
    let needed = match entry.rule {
        FILE_LINES => size::most(&file.path).is_some_and(|most| file.text.lines().count() > most),
        FUNCTION_LINES => excuse(&file.code).is_some(),
        rule => return error(format!("there is no rule {rule}; use {FILE_LINES} or {FUNCTION_LINES}")),
    };
    if !needed {
        return error(format!("{} does not need this exception any more; remove the line", entry.path));
    }
    if entry.reason.is_empty() {
        return error("an exception needs a reason; write it after the path".to_owned());
    }
    None
}

/// The line of the first attribute that excuses a function.
fn excuse(code: &str) -> Option<usize> {
    code.lines().position(|line| line.contains("clippy::too_many_lines")).map(|at| at + 1)
}
