//! Unit tests of the chores that need neither network nor server; `tidy` has its own.

use std::path::Path;

use crate::wheel::Wheel;
use crate::{ci, sdk, tools};

#[test]
fn tests_are_counted_from_the_report_of_nextest() {
    let head = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="56" failures="2" errors="1" uuid="x" timestamp="t" time="1.4">
    <testsuite name="a" tests="9" disabled="0" errors="0" failures="0">"#;
    assert_eq!(ci::counts(head), Some((53, 3)));
    for broken in
        ["", "<testsuites", "<testsuites tests=\"1\">", "<testsuites tests=\"x\" failures=\"0\" errors=\"0\">"]
    {
        assert_eq!(ci::counts(broken), None, "{broken}");
    }
}

#[test]
fn wheels_are_pinned_for_both_kinds_of_linux_machines() {
    for wheel in [&crate::setup::VALKEY, &sdk::NODE, tools::NEXTEST.wheel(), tools::DENY.wheel()] {
        let machines: Vec<&str> = wheel.sha256.iter().map(|(machine, _)| *machine).collect();
        assert_eq!(machines, ["linux-x86_64", "linux-aarch64"], "{}", wheel.name);
        for (_, digest) in wheel.sha256 {
            assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
        }
    }
}

#[test]
fn the_version_of_node_is_read() {
    assert_eq!(sdk::major("v22.20.0\n"), Some(22));
    assert_eq!((sdk::major(""), sdk::major("22.1"), sdk::major("vx.1")), (None, None, None));
}

#[test]
fn a_machine_without_a_wheel_is_told_so_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let none = Wheel { name: "nothing", version: "1", sha256: &[("plan9-vax", "00")] };
    let error = none.unpack(&dir.path().join("place"), Path::new("bin")).unwrap_err().to_string();
    assert!(error.contains("no wheel of nothing is pinned"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn help_is_complete_and_arguments_do_not_collide() {
    use clap::CommandFactory as _;

    crate::Args::command().debug_assert();
}
