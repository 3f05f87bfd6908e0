//! The commands in the documents are run, and what they print is compared with what the documents say.
//!
//! In a document, a comment before a block of `sh` has it run, with a shell that stops at the first failure, on a server of the
//! document's own; tables are printed, as on a terminal, and standard error is among them:
//!
//! - `<!-- run -->`, or `<!-- run N -->` for another exit code than 0. A block of `text` that follows must be what is printed: `…`
//!   stands for anything in a line, a line of it alone for any lines; runs of spaces count as one.
//! - `<!-- not run: REASON -->` is for people; `tests/it/docs.rs` wants one or the other before each block.
//! - `<!-- setup: COMMAND -->` is run, and not compared.
//! - `<!-- worker AGENT: claim -->` has a worker of the test take what there is; `succeed RESULT`, `fail ERROR` (for good) and `retry MS
//!   ERROR` end it; `emit TEXT` writes output of the first. In an error, `{id}` is the task's id.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use tidemill_common::store::{Delivery, Verb};

use crate::support::{Worker, bare, server};

/// The program, with tables unless the document says otherwise.
const PRELUDE: &str = r#"exec 2>&1
producer() {
    case " $* " in *" --output "* | *" -o "* | *" man "* | *" --raw "*) command producer "$@" ;; *) command producer "$@" --output table ;; esac
}
"#;

/// What a document has the runner do.
#[derive(Debug, PartialEq)]
enum Step {
    Run { line: usize, code: i32, script: String, says: Option<String> },
    Setup { line: usize, script: String },
    Worker { line: usize, agent: String, verb: String },
}

fn steps(document: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = document.lines().enumerate().peekable();
    let mut wanted: Option<i32> = None;
    while let Some((at, text)) = lines.next() {
        let line = at + 1;
        if let Some(said) = text.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) {
            if let Some(script) = said.strip_prefix("setup: ") {
                steps.push(Step::Setup { line, script: script.to_owned() });
            } else if let Some((agent, verb)) = said.strip_prefix("worker ").and_then(|rest| rest.split_once(": ")) {
                steps.push(Step::Worker { line, agent: agent.to_owned(), verb: verb.to_owned() });
            } else if said.starts_with("not run: ") {
                // The next block is not wanted.
            } else if let Some(code) = said.strip_prefix("run") {
                wanted = Some(if code.is_empty() { 0 } else { code.trim().parse().unwrap() });
            } else {
                panic!("line {line}: {said:?} is nothing that the runner knows");
            }
        } else if let Some(language) = text.strip_prefix("```").filter(|language| !language.is_empty()) {
            let block: Vec<&str> = lines.by_ref().map(|(_, text)| text).take_while(|text| *text != "```").collect();
            match (language, wanted.take(), steps.last_mut()) {
                ("sh", Some(code), _) => {
                    let (script, says) = (block.join("\n"), None);
                    steps.push(Step::Run { line, code, script, says });
                }
                ("text", None, Some(Step::Run { says, .. })) if says.is_none() => *says = Some(block.join("\n")),
                (_, None, _) => {}
                _ => panic!("line {line}: `run` stands before a block of sh"),
            }
        }
    }
    steps
}

/// Whether what was printed is what a document says.
fn fits(said: &str, printed: &str) -> bool {
    fn lines_fit(said: &[String], printed: &[String]) -> bool {
        match said.split_first() {
            None => printed.is_empty(),
            Some((any, rest)) if any == "…" => (0..=printed.len()).any(|n| lines_fit(rest, &printed[n..])),
            Some((line, rest)) => {
                printed.split_first().is_some_and(|(p, more)| line_fits(line, p) && lines_fit(rest, more))
            }
        }
    }
    fn line_fits(said: &str, printed: &str) -> bool {
        match said.split_once('…') {
            None => said == printed,
            Some((start, rest)) => printed.strip_prefix(start).is_some_and(|tail| {
                tail.char_indices().map(|(at, _)| at).chain([tail.len()]).any(|at| line_fits(rest, &tail[at..]))
            }),
        }
    }
    let plain = |text: &str| -> Vec<String> {
        let lines = text.trim_end().lines();
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    lines_fit(&plain(said), &plain(printed))
}

struct Runner {
    url: String,
    page: &'static str,
    dir: tempfile::TempDir,
    workers: HashMap<String, (Worker, Vec<Delivery>)>,
}

impl Runner {
    fn shell(&self, line: usize, script: &str) -> (Option<i32>, String) {
        let program = Path::new(env!("CARGO_BIN_EXE_producer")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        // The environment that the program gets in other tests.
        for (name, value) in bare().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["-eu", "-c", &format!("{PRELUDE}{script}")]).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", program.display())).env("TIDEMILL__REDIS__URL", &self.url);
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.stderr.is_empty(), "{}, line {line}: {}", self.page, String::from_utf8_lossy(&output.stderr));
        (output.status.code(), printed)
    }

    async fn worker(&mut self, line: usize, agent: &str, verb: &str) {
        if !self.workers.contains_key(agent) {
            self.workers.insert(agent.to_owned(), (Worker::start(&self.url, agent).await, Vec::new()));
        }
        let (worker, held) = self.workers.get_mut(agent).unwrap();
        if held.is_empty() {
            *held = worker.claim().await;
        }
        let (verb, text) = verb.split_once(' ').unwrap_or((verb, ""));
        if verb == "claim" {
            return;
        }
        if verb == "emit" {
            return worker.emit(&held[0], 0, text.as_bytes()).await;
        }
        for delivery in std::mem::take(held) {
            let text = text.replace("{id}", delivery.id.as_str());
            let verb = match verb {
                "succeed" => Verb::Done { result: text.into(), keep_ms: 60_000 },
                "fail" => Verb::Dead { error: text },
                "retry" => {
                    let (after_ms, error) = text.split_once(' ').unwrap();
                    Verb::Retry { error: error.to_owned(), after_ms: after_ms.parse().unwrap() }
                }
                _ => panic!("{}, line {line}: {verb:?} is nothing that a worker does", self.page),
            };
            worker.settle(std::slice::from_ref(&delivery), verb).await;
        }
    }
}

async fn run_page(page: &'static str, blocks_min: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let steps = steps(&std::fs::read_to_string(path).unwrap());
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let mut runner = Runner { url: server.url(), page, dir, workers: HashMap::new() };
    let mut blocks = 0;
    for step in steps {
        match step {
            Step::Setup { line, script } => {
                let (code, printed) = runner.shell(line, &script);
                assert_eq!(code, Some(0), "docs/{page}, line {line}: {printed}");
            }
            Step::Worker { line, agent, verb } => runner.worker(line, &agent, &verb).await,
            Step::Run { line, code, script, says } => {
                blocks += 1;
                let (ended, printed) = runner.shell(line, &script);
                assert_eq!(ended, Some(code), "docs/{page}, line {line}: {script}\n{printed}");
                if let Some(says) = says {
                    assert!(
                        fits(&says, &printed),
                        "docs/{page}, line {line} says\n{says}\nand this was printed\n{printed}"
                    );
                }
            }
        }
    }
    assert!(blocks >= blocks_min, "docs/{page}: {blocks} blocks were run");
}

#[tokio::test]
async fn the_commands_of_operating_are_run() {
    run_page("operating.md", 18).await;
}

#[tokio::test]
async fn the_commands_of_schedules_are_run() {
    run_page("schedules.md", 8).await;
}

#[tokio::test]
async fn the_commands_of_retries_are_run() {
    run_page("retries.md", 6).await;
}

#[tokio::test]
async fn the_commands_of_idempotency_are_run() {
    run_page("idempotency.md", 6).await;
}

#[tokio::test]
async fn the_commands_of_the_shorter_guides_are_run() {
    run_page("limits.md", 1).await;
    run_page("payloads.md", 1).await;
    run_page("timeouts.md", 1).await;
    run_page("upgrading.md", 2).await;
    run_page("compared.md", 8).await;
}

#[test]
fn blocks_are_found_and_compared() {
    let page = "<!-- setup: x -->\n<!-- run 2 -->\n```sh\na\nb\n```\n\n```text\nout\n```\n```sh\nnot this\n```\n<!-- worker a: fail no -->\n";
    let found = steps(page);
    assert_eq!(found.len(), 3, "{found:?}");
    let run = Step::Run { line: 3, code: 2, script: "a\nb".into(), says: Some("out".into()) };
    assert_eq!(found[1], run);
    for (said, printed, fit) in [
        ("a  b", "a b\n", true),
        ("a … c", "a b b c", true),
        ("a…", "a", true),
        ("a…b", "a", false),
        ("…\nlast", "one\ntwo\nlast", true),
        ("first\n…", "first", true),
        ("first", "first\nsecond", false),
    ] {
        assert_eq!(fits(said, printed), fit, "{said:?} {printed:?}");
    }
}
