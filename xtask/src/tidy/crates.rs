//! Which crate may know which, and that the test clock stays out of what is shipped.

use toml::{Table, Value};

use super::tree::File;
use super::{Problem, Tree};

/// For each member (its directory), the members that it may depend on. Arrows point one way, and the programs
/// never at each other; nothing may depend on `tests` or `xtask`.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("common", &[]),
    ("embedded", &[]),
    ("payloads", &["common"]),
    ("producer", &["common", "embedded", "payloads"]),
    ("worker", &["common", "embedded", "payloads"]),
    ("console", &["common", "embedded"]),
    ("bench", &["common", "embedded", "payloads", "producer", "worker"]),
    ("demo", &["common", "embedded", "producer"]),
    ("tests", &["common", "embedded", "payloads", "producer", "worker", "console"]),
    ("xtask", &["common", "embedded", "producer", "worker", "console"]),
];
/// The feature that lets a test set the clock of the scripts.
const TEST_CLOCK: &str = "test-clock";
/// The members that are not part of any release, and are left out of `default-members`, so may have the test
/// clock.
const NOT_RELEASED: &[&str] = &["tests", "xtask"];
/// The member that may depend on the Redis client.
const CLIENT_OWNER: &str = "common";

/// Reads the manifests of the root and of each directory below it.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.ending("Cargo.toml") {
        let member = match file.path.split('/').collect::<Vec<_>>()[..] {
            [member, _] => member,
            [_] => "",
            _ => continue,
        };
        match file.text.parse::<Table>() {
            Ok(manifest) if member.is_empty() => root(&mut problems, file, &manifest),
            Ok(manifest) => one(&mut problems, file, member, &manifest),
            Err(error) => problems.push(Problem::error(&file.path, 0, format!("is not TOML: {}", error.message()))),
        }
    }
    problems
}

fn root(problems: &mut Vec<Problem>, file: &File, manifest: &Table) {
    let workspace = manifest.get("workspace");
    let shared = workspace.and_then(|table| table.get("dependencies")).and_then(Value::as_table);
    for (name, dependency) in shared.into_iter().flatten() {
        if features(dependency).any(|feature| feature == TEST_CLOCK) {
            let message =
                format!("{name} has the feature {TEST_CLOCK} for all members; name it in tests/Cargo.toml only");
            problems.push(Problem::error(&file.path, line(file, name), message));
        }
    }
    let default = workspace.and_then(|table| table.get("default-members")).and_then(Value::as_array);
    for member in default.into_iter().flatten().filter_map(Value::as_str).filter(|name| NOT_RELEASED.contains(name)) {
        let message = format!("{member} among default-members brings its features into a release; remove it");
        problems.push(Problem::error(&file.path, line(file, "default-members"), message));
    }
}

fn one(problems: &mut Vec<Problem>, file: &File, member: &str, manifest: &Table) {
    let mut say = |about: &str, message: String| problems.push(Problem::error(&file.path, line(file, about), message));
    let Some((_, may)) = MAY_KNOW.iter().find(|(name, _)| *name == member) else {
        return say(
            "name",
            format!("{member} is not in the table of xtask/src/tidy/crates.rs; say there what it may know"),
        );
    };
    for (section, name, dependency) in dependencies(manifest) {
        if let Some(other) = ours(name)
            && other != member
            && !may.contains(&other)
        {
            let fix = "move what both need to common";
            say(name, format!("{member} may not depend on {other} (allowed: {}); {fix}", list(may)));
        }
        if name == "fred" && member != CLIENT_OWNER {
            say(name, "only common depends on fred; go through its store".to_owned());
        }
        let released = section != "dev-dependencies" && !NOT_RELEASED.contains(&member);
        if released && features(dependency).any(|feature| feature == TEST_CLOCK) {
            say(name, format!("{TEST_CLOCK} would be in the released {member}; name it in tests/Cargo.toml only"));
        }
    }
    let groups = manifest.get("features").and_then(Value::as_table);
    for (name, parts) in groups.into_iter().flatten() {
        let mut parts = parts.as_array().into_iter().flatten().filter_map(Value::as_str);
        let has_it = parts.any(|part| part == TEST_CLOCK || part.ends_with(&format!("/{TEST_CLOCK}")));
        if has_it && name != TEST_CLOCK {
            let message = format!("the feature {name} turns on {TEST_CLOCK}; only tests may, by that very name");
            say(name, message);
        }
    }
}

/// `(section, name, what it says)` of all dependencies, those of single targets too.
fn dependencies(manifest: &Table) -> impl Iterator<Item = (&'static str, &str, &Value)> {
    const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = std::iter::once(manifest).chain(targets.filter_map(|(_, target)| target.as_table()));
    tables.flat_map(|table| {
        SECTIONS.into_iter().flat_map(move |section| {
            let entries = table.get(section).and_then(Value::as_table).into_iter().flatten();
            entries.map(move |(name, dependency)| (section, name.as_str(), dependency))
        })
    })
}

/// The member behind a package name.
fn ours(package: &str) -> Option<&str> {
    package.strip_prefix("tidemill-").or((package == "xtask").then_some(package))
}

fn features(dependency: &Value) -> impl Iterator<Item = &str> {
    dependency.get("features").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The first line that starts with this name, counted from 1; 0 when there is none.
fn line(file: &File, name: &str) -> usize {
    file.text.lines().position(|line| line.trim_start().starts_with(name)).map_or(0, |at| at + 1)
}
