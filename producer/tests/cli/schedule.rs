//! `producer schedule`: set, list, show, edit, run, pause, delete, and files of them.

use serde_json::{Value, json};

use crate::support::{Worker, bare, finish, run, run_with, server};

/// The kinds of slots: their minutes and hours in the zone.
fn locals(slots: &Value) -> Vec<String> {
    slots.as_array().unwrap().iter().map(|slot| slot["local"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_pattern_is_tried_without_a_server() {
    let next = |args: &[&str]| {
        let mut command = bare();
        command.args(["schedule", "next", "--redis", "redis://127.0.0.1:1"]).args(args);
        finish(command)
    };
    let slots = next(&["--cron", "30 2 * * *", "--zone", "Europe/Berlin"]).assert_code(0).json();
    assert!(slots.as_array().unwrap().len() == 5 && locals(&slots).iter().all(|at| at.contains("T0")), "{slots}");
    assert!(slots[0]["utc"].as_str().unwrap().ends_with('Z') && slots[0]["at_ms"].is_u64(), "{slots}");
    let table = next(&["--cron", "0 9 * * MON-FRI", "-o", "table"]).assert_code(0).out;
    assert!(table.starts_with("UTC") && table.contains("09:00:00 UTC") && !table.contains("Sun "), "{table}");
    for (args, part) in [
        (&["--cron", "61 * * * *"][..], "TM-0213"),
        (&["--cron", "@daily", "--zone", "Mars/Olympus"], "no time zone"),
        (&[], "TM-0201"),
    ] {
        let wrong = next(args).assert_code(2);
        assert!(wrong.err.contains(part), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_schedule_is_set_shown_changed_paused_run_and_deleted() {
    let server = server();
    let url = server.url();
    let set = ["schedule", "set", "nightly", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "index", r#"{"n":1}"#];
    let facts = ["--queue", "slow", "--tenant", "acme", "--start-within", "1h", "--overlap", "skip", "-p", "high"];
    let set = run(&url, &[&set[..], &facts].concat()).assert_code(0).json();
    assert!(set["next"].as_str().unwrap().contains("T02:30:00+0") && set["payload"] == json!({"n": 1}), "{set}");
    run(&url, &["schedule", "set", "tick", "--cron", "* * * * * *", "ping"]).assert_code(0);

    let list = run(&url, &["schedule", "list"]).assert_code(0).json();
    assert_eq!(
        (&list[0]["name"], &list[1]["name"], &list[0]["last_ms"]),
        (&json!("nightly"), &json!("tick"), &json!(null))
    );
    let shown = run(&url, &["schedule", "show", "nightly"]).assert_code(0).json();
    assert!(shown["upcoming"].as_array().unwrap().len() == 5 && shown["overlap"] == "skip", "{shown}");
    let people = run(&url, &["schedule", "show", "nightly", "-o", "table"]).assert_code(0).out;
    assert!(people.contains("start within: 1h") && people.contains("EUROPE/BERLIN"), "{people}");
    assert_eq!(run(&url, &["schedule", "next", "nightly"]).json(), shown["upcoming"]);

    let edited = run(&url, &["schedule", "edit", "nightly", "--tenant", "", "--cron", "@hourly"]).assert_code(0).json();
    assert_eq!(
        (&edited["tenant"], &edited["cron"], &edited["queue"]),
        (&json!(null), &json!("@hourly"), &json!("slow"))
    );
    let paused = run(&url, &["schedule", "pause", "nightly"]).assert_code(0).json();
    assert_eq!((&paused["paused"], &paused["next_ms"]), (&json!(true), &json!(null)));
    let table = run(&url, &["schedule", "list", "-o", "table"]).assert_code(0).out;
    assert!(table.contains("paused"), "{table}");

    // A worker fires what is due; the list tells the task.
    let worker = Worker::start(&url, "ping").await;
    let task = worker.fire_next().await;
    let list = run(&url, &["schedule", "list"]).assert_code(0).json();
    assert!(list[1]["last_task"] == task.as_str() && list[1]["last_ms"].is_u64(), "{list}");

    let id = run(&url, &["schedule", "run", "nightly"]).id();
    let status = run(&url, &["status", &id]).assert_code(0).json();
    assert_eq!(
        (&status["agent"], &status["queue"], &status["priority"]),
        (&json!("index"), &json!("slow"), &json!("high"))
    );
    assert_eq!(run(&url, &["schedule", "resume", "nightly"]).assert_code(0).json()["paused"], false);
    let gone = run(&url, &["schedule", "delete", "nightly"]).assert_code(0).json();
    assert_eq!(gone, json!({"name": "nightly", "deleted": true}));
    for verb in ["delete", "show", "run", "pause", "next", "edit"] {
        let none = run(&url, &["schedule", verb, "nightly"]).assert_code(1);
        assert!(none.err.contains("TM-0409") && none.err.contains("known are: tick"), "{none:?}");
    }
    for (args, part) in [
        (&["schedule", "set", "x", "a"][..], "no pattern"),
        (&["schedule", "set", "x", "a", "{", "--cron", "@daily"], "not JSON"),
        (&["schedule", "set", "x", "a", "--cron", "0 0 30 2 *"], "never comes"),
        (&["schedule", "edit", "tick", "--max-attempts", "0"], "TM-0101"),
    ] {
        let wrong = run(&url, args).assert_code(2);
        assert!(wrong.err.contains(part), "{args:?}: {wrong:?}");
    }
}

#[test]
fn a_file_is_put_in_force_whole_or_not_at_all() {
    let server = server();
    let url = server.url();
    let file = r#"
[[schedule]]
name = "nightly"
cron = "30 2 * * *"
agent = "index"
payload = { full = true }

[[schedule]]
name = "probe"
cron = "*/5 * * * *"
agent = "ping"
start_within = "1m"
paused = true
"#;
    let apply =
        |file: &str, more: &[&str]| run_with(&url, &[&["schedule", "apply", "-"], more].concat(), file.as_bytes());
    let outcomes = |run: &Value| {
        run.as_array().unwrap().iter().map(|s| s["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&apply(file, &["--dry-run"]).assert_code(0).json()), ["new", "new"]);
    assert_eq!(run(&url, &["schedule", "list"]).json(), json!([]));
    apply(file, &[]).assert_code(0);
    assert_eq!(outcomes(&apply(file, &[]).assert_code(0).json()), ["same", "same"]);
    let probe = run(&url, &["schedule", "show", "probe"]).json();
    assert_eq!((&probe["paused"], &probe["start_within_ms"]), (&json!(true), &json!(60_000)));

    let changed = file.replace("30 2", "45 2");
    let said = apply(&changed, &["-o", "table", "--dry-run"]).assert_code(0);
    assert!(said.out.contains("nightly  changed: cron") && said.err.contains("dry run"), "{said:?}");
    let bad = changed.replace("*/5", "99").replace("agent = \"index\"", "agnt = \"index\"");
    let refused = apply(&bad, &[]).assert_code(2);
    assert!(
        refused.err.contains("TM-0213") && refused.err.contains("nightly: ") && refused.err.contains("probe: "),
        "{refused:?}"
    );
    assert_eq!(run(&url, &["schedule", "show", "nightly"]).json()["cron"], "30 2 * * *");

    run(&url, &["schedule", "set", "by-hand", "--cron", "@daily", "echo"]).assert_code(0);
    let pruned = ["new", "same", "deleted", "deleted"];
    let other = changed
        .replace("\"nightly\"", "\"nightly-2\"")
        .split("[[schedule]]")
        .take(2)
        .collect::<Vec<_>>()
        .join("[[schedule]]");
    let probe = file.split("[[schedule]]").nth(2).unwrap();
    let other = format!("{other}[[schedule]]{probe}");
    assert_eq!(outcomes(&apply(&other, &["--dry-run"]).assert_code(0).json()), pruned[..2], "nothing without the flag");
    let plan = apply(&other, &["--prune", "--dry-run"]).assert_code(0).json();
    let gone: Vec<_> = plan.as_array().unwrap()[2..].iter().map(|s| (&s["name"], &s["outcome"])).collect();
    let deleted = json!("deleted");
    assert_eq!(gone, [(&json!("by-hand"), &deleted), (&json!("nightly"), &deleted)]);
    assert_eq!(run(&url, &["schedule", "list"]).json().as_array().unwrap().len(), 3, "it was a dry run");
    assert_eq!(outcomes(&apply(&other, &["--prune"]).assert_code(0).json()), pruned);
    let names: Vec<_> =
        run(&url, &["schedule", "list"]).json().as_array().unwrap().iter().map(|s| s["name"].clone()).collect();
    assert_eq!(names, ["nightly-2", "probe"]);
    assert_eq!(outcomes(&apply(&other, &["--prune"]).assert_code(0).json()), ["same", "same"]);
    apply("", &["--prune"]).assert_code(2);
}
