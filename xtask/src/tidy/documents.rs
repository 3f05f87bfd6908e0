//! Documents that list what the code has: both say the same, or one of them is wrong.

use std::collections::BTreeSet;

use super::{Problem, Tree};

const CHART: &str = "docs/state-machine.md";
const SCRIPTS: &str = "common/lua/";
const KEY_DOCUMENT: &str = "docs/redis-keys.md";
const KEY_TABLE: &str = "common/src/keys.rs";
/// How the table of keys starts in the code; it ends at the first `];`.
const KEY_TABLE_START: &str = "pub const KEYS:";

/// Every script that the state chart names (`name.lua`) exists in `common/lua/`, and every one there is named.
/// Fragments in `common/lua/lib/` are no scripts.
pub(crate) fn scripts(tree: &Tree) -> Vec<Problem> {
    let Some(chart) = tree.file(CHART) else {
        return vec![Problem::note(CHART, "does not exist yet, so scripts are not compared with it")];
    };
    let named: BTreeSet<&str> = chart.text.split(|char: char| !is_path(char)).filter_map(script_name).collect();
    let in_tree = tree.ending(".lua").filter_map(|file| file.path.strip_prefix(SCRIPTS)?.strip_suffix(".lua"));
    let there: BTreeSet<&str> = in_tree.filter(|name| !name.contains('/')).collect();
    let missing = named.difference(&there).map(|name| {
        let line = chart.text.lines().position(|line| line.contains(&format!("{name}.lua"))).map_or(0, |at| at + 1);
        Problem::error(
            CHART,
            line,
            format!("names {name}.lua, which is not in {SCRIPTS}; correct the name, or remove it"),
        )
    });
    let unnamed = there.difference(&named).map(|name| {
        let path = format!("{SCRIPTS}{name}.lua");
        Problem::error(
            path,
            0,
            format!("is not named in {CHART}; add its edge, or list it there as a script that moves no task"),
        )
    });
    missing.chain(unnamed).collect()
}

fn is_path(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '/' | '.')
}

/// The script that a word names, without its directory; `None` for fragments and other words.
fn script_name(word: &str) -> Option<&str> {
    let path = word.trim_end_matches('.').strip_suffix(".lua")?;
    let name = path.rsplit_once(SCRIPTS).map_or(path, |(_, name)| name);
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The patterns in the first column of `docs/redis-keys.md` are those in the first column of `KEYS`.
pub(crate) fn keys(tree: &Tree) -> Vec<Problem> {
    let Some(document) = tree.file(KEY_DOCUMENT) else {
        return vec![Problem::note(KEY_DOCUMENT, "does not exist yet, so keys are not compared with it")];
    };
    let Some(declared) = tree.file(KEY_TABLE).and_then(|file| declared(&file.uncommented)) else {
        return vec![Problem::note(
            KEY_TABLE,
            format!("has no `{KEY_TABLE_START}` yet, so keys are not compared with it"),
        )];
    };
    let documented: BTreeSet<&str> = document.text.lines().filter_map(documented).collect();
    let unwritten = declared.difference(&documented).map(|pattern| {
        Problem::error(KEY_DOCUMENT, 0, format!("has no row for `{pattern}`, which {KEY_TABLE} declares; add one"))
    });
    let unknown = documented.difference(&declared).map(|pattern| {
        let line = document.text.lines().position(|line| documented_is(line, pattern)).map_or(0, |at| at + 1);
        Problem::error(
            KEY_DOCUMENT,
            line,
            format!("`{pattern}` is not in KEYS of {KEY_TABLE}; remove the row, or declare it"),
        )
    });
    unwritten.chain(unknown).collect()
}

fn documented_is(line: &str, pattern: &str) -> bool {
    documented(line) == Some(pattern)
}

/// The pattern of a table row such as ``| `B:j:<id>` | string | … |``, without the base.
fn documented(line: &str) -> Option<&str> {
    let cell = line.trim_start().strip_prefix('|')?.trim_start().strip_prefix('`')?;
    let (pattern, _) = cell.split_once('`')?;
    Some(pattern.strip_prefix("B:").unwrap_or(pattern))
}

/// The first text of each entry of the table: what stands after an opening parenthesis.
fn declared(code: &str) -> Option<BTreeSet<&str>> {
    let (_, table) = code.split_once(KEY_TABLE_START)?;
    let (table, _) = table.split_once("];")?;
    let entries = table.split('(').skip(1).filter_map(|entry| entry.trim_start().strip_prefix('"')?.split('"').next());
    Some(entries.collect())
}
