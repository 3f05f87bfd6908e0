//! What the documents say of states, keys, bytes and tests is so.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidemill_common::keys::{KEYS, Lifetime};
use tidemill_common::state::{EDGES, State};
use tidemill_common::store::{Accepted, RedisOptions, Store};
use tidemill_common::task::{NewTask, Priority};
use tidemill_tests::program::Program;
use tidemill_tests::server;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The cells of each row of the tables in a document.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter_map(|line| Some(line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect()))
}

fn quoted(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.split('`').next()
}

/// An edge in words: from, to, script.
type Edge = (String, String, String);

fn edges_in_code() -> BTreeSet<Edge> {
    let name = |state: &Option<State>| state.map_or("(none)", State::as_str).to_owned();
    EDGES.iter().map(|(from, to, script)| (name(from), to.to_string(), (*script).to_owned())).collect()
}

fn compare(what: &str, said: &BTreeSet<Edge>) {
    let code = edges_in_code();
    let missing: Vec<_> = code.difference(said).collect();
    let wrong: Vec<_> = said.difference(&code).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "docs/state-machine.md, {what}: missing {missing:?}; not in EDGES {wrong:?}"
    );
}

#[test]
fn the_table_of_edges_and_the_code_agree() {
    let document = read("docs/state-machine.md");
    let said = rows(&document).filter_map(|cells| match cells[..] {
        [from, to, script, _] => {
            Some((from.to_owned(), to.to_owned(), quoted(script)?.strip_suffix(".lua")?.to_owned()))
        }
        _ => None,
    });
    let all: Vec<Edge> = said.collect();
    let different: BTreeSet<Edge> = all.iter().cloned().collect();
    assert_eq!(all.len(), different.len(), "an edge stands there twice");
    compare("the table", &different);
}

#[test]
fn the_chart_of_edges_and_the_code_agree() {
    let document = read("docs/state-machine.md");
    let mut said = BTreeSet::new();
    for line in document.lines() {
        let Some((states, scripts)) = line.trim().split_once(": ") else { continue };
        let Some((from, to)) = states.split_once(" --> ") else { continue };
        let from = if from == "[*]" { "(none)" } else { from };
        for script in scripts.split(", ") {
            let script = script.strip_suffix(".lua").unwrap_or_else(|| panic!("{line}: an arrow's label names files"));
            said.insert((from.to_owned(), to.to_owned(), script.to_owned()));
        }
    }
    compare("the chart", &said);
}

#[test]
fn the_key_document_and_the_code_agree() {
    let document = read("docs/redis-keys.md");
    let said: BTreeSet<(String, String, String)> = rows(&document)
        .filter_map(|cells| {
            let pattern = quoted(cells.first()?)?.strip_prefix("B:")?;
            Some((pattern.to_owned(), cells.get(1)?.replace(" or ", " | "), (*cells.get(2)?).to_owned()))
        })
        .collect();
    let lifetime = |lifetime: &Lifetime| match lifetime {
        Lifetime::Permanent => "permanent",
        Lifetime::Owned => "owned",
        Lifetime::Ttl => "TTL",
    };
    let code: BTreeSet<_> = KEYS.iter().map(|k| (k.0.to_owned(), k.1.to_owned(), lifetime(&k.2).to_owned())).collect();
    let missing: Vec<_> = code.difference(&said).collect();
    let wrong: Vec<_> = said.difference(&code).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "docs/redis-keys.md: missing {missing:?}; not in KEYS {wrong:?}");
    let permanent =
        document.split("## The permanent keys").nth(1).and_then(|rest| rest.split("\n\n").nth(1)).unwrap_or_default();
    for key in KEYS.iter().filter(|k| k.2 == Lifetime::Permanent) {
        assert!(permanent.contains(&format!("`{}`", key.0)), "the list of permanent keys has no {}", key.0);
    }
}

#[test]
fn deleting_each_key_has_a_stated_cost() {
    let document = read("docs/guarantees.md");
    let said: Vec<&str> = rows(&document).filter_map(|cells| cells.first().copied()).collect();
    for key in KEYS {
        assert!(
            said.iter().any(|cell| cell.contains(&format!("`B:{}`", key.0))),
            "docs/guarantees.md says no cost of {}",
            key.0
        );
    }
}

/// All Rust code of the tree.
fn code(dir: &Path, into: &mut String) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())).flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let skipped = name.to_string_lossy().starts_with('.') || name == "target";
        if path.is_dir() && !skipped {
            code(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

#[test]
fn each_guarantee_names_tests_that_exist() {
    let document = read("docs/guarantees.md");
    let mut all = String::new();
    code(&root(), &mut all);
    let mut guarantees = 0;
    for section in document.split("\n## ").filter(|section| section.starts_with(|c: char| c.is_ascii_digit())) {
        let title = section.lines().next().unwrap_or_default();
        let tests = section.split("- *Test*: ").nth(1).unwrap_or_else(|| panic!("guarantee {title:?} names no test"));
        let names: Vec<&str> = tests.split('`').filter_map(|word| word.strip_suffix("()")).collect();
        assert!(!names.is_empty() || tests.starts_with("none of its own yet"), "guarantee {title:?} names no test");
        for name in names {
            assert!(all.contains(&format!("fn {name}(")), "guarantee {title:?} names {name}, which is nowhere");
        }
        guarantees += 1;
    }
    assert!(guarantees >= 20, "{guarantees} guarantees were found");
}

#[test]
fn decisions_are_numbered_and_of_one_form() {
    let mut files: Vec<String> = fs::read_dir(root().join("docs/adr"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    for (at, file) in files.iter().enumerate() {
        assert!(file.starts_with(&format!("{:04}-", at + 1)), "{file} is not the next number");
        let text = read(&format!("docs/adr/{file}"));
        for part in ["# ADR ", "## Context", "## Choice", "## Price"] {
            assert!(text.contains(part), "{file} has no {part:?}");
        }
    }
}

/// What another language does with `docs/wire.md` alone is what this one does.
#[tokio::test]
async fn the_example_of_the_wire_document_submits_a_task() {
    let document = read("docs/wire.md");
    let example = document.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let server = server::start();
    let run = || {
        let mut python = Command::new("python3");
        python.args(["-c", example]).current_dir(root()).env("TIDEMILL_SOCKET", server.socket_path());
        let output = python.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        let (id, reply) = said.trim().split_once(' ').unwrap();
        (id.to_owned(), reply.to_owned())
    };
    let (id, reply) = run();
    assert_eq!(reply, "q");
    assert_eq!(run().1, format!("d{id}"), "the key is the same");

    let store = Store::connect(&RedisOptions { url: server.url(), ..RedisOptions::default() }).await.unwrap();
    let id = id.parse().unwrap();
    let status = store.status(&id, None).await.unwrap();
    assert_eq!((status.state, status.agent.as_str()), (Some(State::Queued), "echo"));
    let same = NewTask::new("echo".parse().unwrap(), r#"{"hi":"there"}"#)
        .tenant("acme")
        .key("report-7")
        .priority(Priority::High);
    assert_eq!(store.submit(&[same], 0).await.unwrap(), [Accepted::Duplicate(id)], "both have the same fingerprint");
}

/// Pages for people that have commands: README and all of `docs`.
fn pages() -> Vec<String> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let names = docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_string_lossy()));
    let mut all: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    all.push("README.md".to_owned());
    all.sort();
    all
}

/// A block of commands: the line before it, and its text.
fn commands(page: &str) -> Vec<(String, String)> {
    let text = read(page);
    let mut lines = text.lines().peekable();
    let (mut blocks, mut before) = (Vec::new(), "");
    while let Some(line) = lines.next() {
        if line == "```sh" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((before.to_owned(), block.join("\n")));
        }
        before = line;
    }
    blocks
}

/// `producer/tests/cli/docs.rs` runs pages with a worker of the test, the test below one with a worker of its own.
#[test]
fn every_command_of_a_page_is_run_or_has_a_reason() {
    let runner = read("producer/tests/cli/docs.rs");
    let mut run = 0;
    for page in pages() {
        for (before, block) in commands(&page) {
            let mark = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")).unwrap_or_default();
            let reason = mark.strip_prefix("not run: ").is_some_and(|reason| reason.len() >= 20);
            let name = page.trim_start_matches("docs/");
            let is_run =
                mark.starts_with("run") && (page == FIRST_STEPS || runner.contains(&format!("run_page(\"{name}\"")));
            assert!(
                is_run || reason,
                "{page}: before the block {block:?} stands neither `<!-- run -->`, with the page in a runner, nor `<!-- not run: REASON -->`"
            );
            run += usize::from(is_run);
        }
    }
    assert!(run >= 45, "{run} blocks are run");
}

const FIRST_STEPS: &str = "docs/first-steps.md";

/// In a folder of its own, beside a `worker dev`, as somebody does who reads it.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_steps_can_be_taken() {
    let dev = Program::start("worker", &["dev", "--profile=fast", "--admin=127.0.0.1:0"], &[]);
    let folder = dev.folder().to_owned();
    let programs = server::bin("producer").parent().unwrap().to_owned();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let run = |script: &str| {
        let mut shell = Command::new("sh");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEMILL")) {
            shell.env_remove(name);
        }
        shell.args(["-eu", "-c", script]).current_dir(&folder).env("PATH", &path);
        shell.stdin(std::process::Stdio::null()).output().unwrap()
    };
    let by = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !run("producer workers --output json | grep -q name").status.success() {
        assert!(std::time::Instant::now() < by, "worker dev is not up: {}", dev.log());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let mut blocks = 0;
    for (before, block) in commands(FIRST_STEPS) {
        let Some(code) = before.strip_prefix("<!-- run").and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        let ended = run(&block);
        let said = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert_eq!(ended.status.code(), Some(code.trim().parse().unwrap_or(0)), "{block}\n{said}");
        blocks += 1;
    }
    assert!(blocks >= 6, "{blocks} blocks were run");
    // One that still naps when the grace is over is handed back, and the worker says so by its exit code.
    let by = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !run("test -z \"$(producer list --state running --output ndjson)\"").status.success() {
        assert!(std::time::Instant::now() < by, "something runs on: {}", dev.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    dev.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(dev.exit(std::time::Duration::from_secs(30)).await.code(), Some(0));
}
