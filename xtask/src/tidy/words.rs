//! Words that may stand only in some places, and some nowhere.

use super::tree::File;
use super::{Problem, Tree};

/// The one place that knows the Redis client.
const STORE: &str = "common/src/store";
/// The one place that knows key names.
const KEYS: &str = "common/src/keys";

/// Looks at code, not at comments or texts, so a rule may be talked about.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    tree.ending(".rs").flat_map(in_file).collect()
}

fn in_file(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut say = |line: usize, message: &str| problems.push(Problem::error(&file.path, line + 1, message));
    let mut test = file.is_test();
    for (at, code) in file.code.lines().enumerate() {
        // Unit tests come last in a file, so what follows this line is test code.
        test |= code.contains("#[cfg(test)]");
        if has_word(code, "fred") && !file.path.starts_with(STORE) {
            say(
                at,
                "fred is known to common/src/store only, so that it can be exchanged; add what you need to the store",
            );
        }
        if code.contains("#[ignore") || code.contains(", ignore)]") {
            say(at, "an ignored test is forgotten; fix it, delete it, or assert the wrong behaviour and say FIXME");
        }
        if has_word(code, "todo") && code.contains("todo!") {
            say(at, "unfinished code does not land; finish it, or return an error that says what is missing");
        }
        if test && code.contains("thread::sleep") {
            say(at, "a test that sleeps is slow or flaky; wait for the event itself, or move the test clock");
        }
    }
    for (at, text) in file.uncommented.lines().enumerate() {
        if names_key(text) && !file.path.starts_with(KEYS) {
            say(at, "key names live in common/src/keys.rs only; take the key from there");
        }
    }
    problems
}

/// Whether a text on this line starts like a key. A log target (`tidemill::…`) does not.
fn names_key(text: &str) -> bool {
    let start = concat!('"', "tidemill", ':');
    text.match_indices(start).any(|(at, _)| !text.get(at + start.len()..).is_some_and(|rest| rest.starts_with(':')))
}

fn has_word(code: &str, word: &str) -> bool {
    let letter = |char: char| char.is_alphanumeric() || char == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        let after = code.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(letter) && !after.is_some_and(letter)
    })
}
