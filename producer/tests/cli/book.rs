//! `producer book`: rules put in force, looked at, changed.

use serde_json::json;

use crate::support::{run, run_with, server};

const SEVEN: &str = "# the key of the team\nrevision = 7\ntiers = [\"free\", \"pro\"]\n[[limit]]\nmatch = { agent = \"gpt4\" }\n\
                     slots = 5\nrate = { minute = 60 }\n";

#[test]
fn books_are_applied_once_and_mistakes_come_together() {
    let server = server();
    let url = server.url();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("book.toml");
    let path = file.to_str().unwrap();
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write(SEVEN);
    run(&url, &["book", "apply", path, "--dry-run"]).assert_code(0);
    assert_eq!(run(&url, &["book", "show"]).assert_code(0).json(), json!(null), "a dry run puts nothing in force");
    assert_eq!(run(&url, &["book", "apply", path, "--note", "first"]).assert_code(0).json()["outcome"], "applied");
    assert_eq!(run(&url, &["book", "apply", path]).assert_code(0).json()["outcome"], "same");
    let shown = run("redis://127.0.0.1:1", &["book", "show-compiled", path]).assert_code(0).json();
    let rules = json!([{"k": "s", "p": "", "c": 5}, {"k": "r", "p": "", "w": [[60, 60_000]]}]);
    assert_eq!(shown, json!({"revision": 7, "masks": ["a"], "rules": [{"field": "a/gpt4", "rules": rules}]}));
    assert_eq!(
        run(&url, &["book", "show", "--output", "table"]).assert_code(0).out.trim(),
        SEVEN.trim(),
        "with its comments"
    );
    write("revision = 7\n[[limit]]\nslots = 6\n");
    assert_eq!(run(&url, &["book", "apply", path]).assert_code(5).json()["outcome"], "conflict");
    write("revision = 6\n[[limit]]\nslots = 6\n");
    assert_eq!(run(&url, &["book", "apply", path]).assert_code(5).json()["in_force"], 7);
    write("revision = 0\n[[limit]]\n[[limit]]\nslots = 0\n");
    let bad = run(&url, &["book", "apply", path]).assert_code(2);
    assert_eq!(bad.err.lines().filter(|line| line.contains("  - ")).count(), 3, "{bad:?}");
    assert!(bad.err.contains("line 2: ") && bad.err.contains("line 3: "), "{bad:?}");
    run(&url, &["book", "apply", "/no/such/file"]).assert_code(2);
}

#[test]
fn a_plan_says_what_changes_for_what_waits() {
    let server = server();
    let url = server.url();
    run_with(&url, &["book", "apply", "-"], SEVEN.as_bytes()).assert_code(0);
    for cost in ["1", "40"] {
        run(&url, &["submit", "gpt4", "1", "--cost", cost]).assert_code(0);
    }
    run(&url, &["submit", "other", "1"]).assert_code(0);
    let next = "revision = 8\n[[limit]]\nmatch = { agent = \"gpt4\" }\nrate = { minute = 30 }\n[[limit]]\nmatch = { queue = \"q\" }\nslots = 1\n";
    let plan = run_with(&url, &["book", "diff", "-"], next.as_bytes()).assert_code(0).json();
    assert_eq!(
        plan["rules"],
        json!([
            {"rule": "agent gpt4", "kind": "rate", "before": "60 per minute", "after": "30 per minute"},
            {"rule": "agent gpt4", "kind": "slots", "before": "5", "after": null},
            {"rule": "queue q", "kind": "slots", "before": null, "after": "1"},
        ])
    );
    assert_eq!((&plan["waiting"], &plan["touched"]), (&json!(3), &json!({"gpt4": 2})));
    assert_eq!((&plan["stranded"], &plan["stranded_first"][0]["gate"]), (&json!(1), &json!("r/a/gpt4")));
    let table =
        run_with(&url, &["book", "apply", "-", "--dry-run", "--output", "table"], next.as_bytes()).assert_code(0).out;
    assert!(table.contains("~ agent gpt4: rate 60 per minute -> 30 per minute"), "{table}");
    assert!(table.contains("1 could never pass"), "{table}");
}

#[test]
fn one_knob_is_turned_and_the_history_keeps_all() {
    let server = server();
    let url = server.url();
    let empty = run(&url, &["book", "show", "--output", "table"]).assert_code(0).out;
    assert!(empty.contains("nothing is limited"), "{empty}");
    assert_eq!(run(&url, &["book", "history"]).assert_code(0).json(), json!([]));
    let set = |args: &[&str]| run(&url, &[&["book", "set"], args].concat());
    set(&["--agent", "gpt4", "slots=5", "rate.minute=60", "rate.burst=10", "--note", "a start"]).assert_code(0);
    set(&["--agent", "gpt4", "rate.second=20", "rate.minute=none"]).assert_code(0);
    assert_eq!(
        run(&url, &["book", "set", "--agent", "gpt4", "slots=none", "rate=none"]).assert_code(0).json()["revision"],
        3
    );
    let text = |n: &str| run(&url, &["book", "show", "--revision", n, "--output", "table"]).assert_code(0).out;
    assert!(text("1").contains("minute = 60") && text("1").contains("burst = 10"), "{}", text("1"));
    assert!(text("2").contains("second = 20") && !text("2").contains("minute"), "{}", text("2"));
    assert!(!text("3").contains("limit"), "{}", text("3"));
    let history = run(&url, &["book", "history"]).json();
    assert_eq!((&history[0]["revision"], &history[2]["note"]), (&json!(3), &json!("a start")));
    run(&url, &["book", "show", "--revision", "99"]).assert_code(1);
    for wrong in ["slots", "slots=x", "nope=1", "rate.eon=1", "rate=5", "slots=0", "rate.burst=5"] {
        set(&["--agent", "gpt4", wrong]).assert_code(2);
    }
    run(&url, &["book", "tier", "acme", "pro"]).assert_code(2);
    run_with(&url, &["book", "apply", "-"], SEVEN.as_bytes()).assert_code(0);
    assert_eq!(run(&url, &["book", "tier", "acme", "pro"]).assert_code(0).json()["revision"], 8);
}

#[test]
fn a_task_that_could_never_pass_is_refused_with_a_code() {
    let server = server();
    let url = server.url();
    run_with(&url, &["book", "apply", "-"], SEVEN.as_bytes()).assert_code(0);
    let refused = run(&url, &["submit", "gpt4", "1", "--cost", "61"]).assert_code(5);
    assert!(refused.err.contains("TM-0109") && refused.err.contains("r/a/gpt4"), "{refused:?}");
    run(&url, &["submit", "gpt4", "1", "--weight", "6"]).assert_code(5);
    run(&url, &["submit", "gpt4", "1", "--weight", "0"]).assert_code(2);
}
