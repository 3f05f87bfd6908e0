//! No server, a frozen one, one that does not let us in; and the configuration.

use std::time::{Duration, Instant};

use tidemill_embedded::{Options, Tcp};

use crate::support::{bare, finish, producer, run, server, server_with};

/// What the program may take to find out that there is no server.
const BOUND: Duration = Duration::from_millis(5_500);
const SECRET: &str = "s3cr3t@?/w0rd";

#[test]
fn no_server_is_said_in_three_lines_and_in_time() {
    for url in ["redis://u:s3cr3t@127.0.0.1:1", "redis+unix:///no/such.sock", "redis://no-such-host.invalid:6379"] {
        let began = Instant::now();
        let run = run(url, &["submit", "a", "1"]).assert_code(7);
        assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
        assert_eq!(run.err.lines().count(), 3, "{run:?}");
        assert!(run.err.contains(&url.replace("u:s3cr3t@", "")) && !run.err.contains("s3cr3t"), "{run:?}");
        for way in ["worker dev", "apt-get", "docker", "--redis", "TIDEMILL__REDIS__URL"] {
            assert!(run.err.contains(way), "{run:?}");
        }
        assert_eq!(run.out, "");
    }
}

#[test]
fn timing_a_frozen_server_is_given_up_in_time() {
    let mut server = server_with(Options::new().tcp(Tcp::Free));
    server.freeze().unwrap();
    for url in [server.url(), server.tcp_url().unwrap()] {
        let began = Instant::now();
        run(&url, &["queue"]).assert_code(7);
        assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    }
    server.thaw().unwrap();
}

#[test]
fn a_wrong_password_is_said_and_no_password_is_shown() {
    let server = server_with(Options::new().tcp(Tcp::Free).config_line("requirepass right"));
    let encoded = "s3cr3t%40%3F%2Fw0rd";
    let port = server.port().unwrap();
    for url in [format!("redis://:{encoded}@127.0.0.1:{port}"), format!("redis://127.0.0.1:{port}")] {
        let mut command = producer(&url, &["queue"]);
        command.env("TIDEMILL_LOG", "trace");
        let run = finish(command).assert_code(7);
        for secret in [SECRET, encoded, "s3cr3t"] {
            assert!(!run.err.contains(secret) && !run.out.contains(secret), "{run:?}");
        }
        assert!(run.err.contains("does not let us in"), "{run:?}");
    }
    run(&format!("redis://:right@127.0.0.1:{port}"), &["queue"]).assert_code(0);
}

#[test]
fn the_development_server_is_found_unless_something_is_configured() {
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::create_dir_all(dir.path().join(".tidemill/dev")).unwrap();
    std::fs::write(dir.path().join(".tidemill/dev/redis.url"), format!("{}\n", server.url())).unwrap();
    let from_below = |args: &[&str]| {
        let mut command = bare();
        command.current_dir(&below).args(args);
        command
    };
    let found = finish(from_below(&["submit", "a", "1"])).assert_code(0);
    assert!(found.err.contains("development server"), "{found:?}");
    assert_eq!(finish(from_below(&["queue", "--quiet"])).assert_code(0).err, "");
    let configured = finish(from_below(&["queue", "--redis", "redis://127.0.0.1:1"])).assert_code(7);
    assert!(!configured.err.contains("development server"), "{configured:?}");
    let mut command = from_below(&["queue"]);
    command.env("TIDEMILL__REDIS__URL", "redis://127.0.0.1:1");
    finish(command).assert_code(7);
}

#[test]
fn a_configuration_is_read_and_its_mistakes_come_together() {
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("producer.toml");
    let secret = dir.path().join("url");
    std::fs::write(&secret, format!("{}\n", server.url())).unwrap();
    std::fs::write(&file, format!("[redis]\nurl_file = {:?}\n", secret.to_str().unwrap())).unwrap();
    let with = |value: &str| {
        let mut command = bare();
        command.args(["--config", file.to_str().unwrap(), "queue"]).env("TIDEMILL__WAIT__TIMEOUT", value);
        finish(command)
    };
    with("1m").assert_code(0);
    std::fs::write(&file, "[redis]\nurll = \"x\"\n[submit]\ncalls_in_flight = 0\n").unwrap();
    let wrong = with("soon").assert_code(2);
    for part in ["urll", "did you mean `url`?", "calls_in_flight", "wait.timeout"] {
        assert!(wrong.err.contains(part), "{wrong:?}");
    }
    std::fs::remove_file(&file).unwrap();
    with("1m").assert_code(2);
}

#[test]
fn a_url_that_cannot_be_read_is_a_usage_error_without_its_secret() {
    let wrong = run("redis//u:s3cr3t@h", &["queue"]).assert_code(2);
    assert!(!wrong.err.contains("s3cr3t"), "{wrong:?}");
}

#[test]
fn every_failure_begins_with_a_code_that_explain_knows() {
    let server = server();
    let url = server.url();
    run(&url, &["submit", "a", "1", "--key", "k"]).assert_code(0);
    for (args, code, exit) in [
        (&["submit", "a", "1", "--key", "k", "--fail-on-duplicate"][..], "TM-0106", 5),
        (&["submit", "a", "2", "--key", "k"], "TM-0105", 5),
        (&["submit", "a", "{"], "TM-0203", 2),
        (&["submit", "a", "1", "--payload-file", "x"], "TM-0201", 2),
        (&["submit", "a", "--payload-file", "/no/such/file"], "TM-0204", 2),
        (&["submit", "a", "1", "--max-attempts", "0"], "TM-0101", 2),
        (&["sumbit"], "TM-0201", 2),
        (&["status", "a:b"], "TM-0202", 2),
        (&["explain", "TM-9999"], "TM-0201", 2),
        (&["queue", "--redis", "redis://127.0.0.1:1"], "TM-0301", 7),
    ] {
        let failed = run(&url, args).assert_code(exit);
        assert!(failed.err.starts_with(&format!("error[{code}]: ")), "{args:?}: {failed:?}");
        // No server is asked.
        let explained = run("redis://127.0.0.1:1", &["explain", code]).assert_code(0).json();
        assert_eq!(explained["code"], code);
    }
    assert!(run(&url, &["explain", "tm-0102", "--output", "table"]).assert_code(0).out.starts_with("TM-0102: "));
    let mut command = producer(&url, &["sumbit", "--color", "always"]);
    command.env_remove("NO_COLOR");
    assert!(finish(command).err.contains("\u{1b}["), "in the colours that were asked for");
}
