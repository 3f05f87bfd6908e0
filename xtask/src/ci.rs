//! `cargo xtask ci`: what `.ci/run` runs. All steps run even when one fails, so that one run tells everything.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{model, sdk, shell, test, tidy, tools};

/// One step: its name, what it is for, and how to do it.
type Step = (&'static str, &'static str, fn() -> Result<()>);

/// All steps, the cheap ones first.
const STEPS: &[Step] = &[
    ("fmt", "the code is formatted", fmt),
    ("tidy", "house rules", tidy_all),
    ("deny", "licences, sources and versions of dependencies", deny),
    ("python", "sdk/python: its tests and its types", sdk::python),
    ("node", "sdk/node: its tests", sdk::node_tests),
    ("clippy", "lints, as errors", clippy),
    ("test", "all tests", tests),
    ("s3", "payloads in a bucket: what only that feature brings", s3),
    ("otlp", "spans by OTLP: what only that feature brings, and its lints", otlp),
    ("valkey", "the model test on Valkey, where the tests ran on Redis", model::on_valkey),
    ("doctest", "examples in the documentation", test::doctests),
    ("doc", "the documentation builds, private items too", doc),
];

/// The nextest profile, which writes the report that the tests are counted from.
const PROFILE: &str = "ci";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these steps; all when none is named
    #[arg(value_name = "STEP", value_parser = STEPS.iter().map(|step| step.0).collect::<Vec<_>>())]
    steps: Vec<String>,
}

struct Done {
    name: &'static str,
    what: &'static str,
    took: Duration,
    error: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.steps.is_empty() || args.steps.iter().any(|step| step == name);
    // An old report must not be counted when the tests do not get far enough to write one.
    let report = shell::target().join("nextest").join(PROFILE).join("junit.xml");
    let _ = fs::remove_file(&report);

    let mut all = Vec::new();
    for &(name, what, step) in STEPS.iter().filter(|step| wanted(step.0)) {
        eprintln!("\n== {name}: {what}");
        let started = Instant::now();
        let error = step().err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            eprintln!("error: {error}");
        }
        all.push(Done { name, what, took: started.elapsed(), error });
    }
    print!("\n{}", table(&all));
    let failed: Vec<&str> = all.iter().filter(|done| done.error.is_some()).map(|done| done.name).collect();
    let counts = fs::read_to_string(&report).ok().as_deref().and_then(counts);
    if let Some((passed, failed)) = counts {
        println!("{passed} passed, {failed} failed");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn table(all: &[Done]) -> String {
    let line = |done: &Done| {
        let verdict = if done.error.is_some() { "FAILED" } else { "ok" };
        format!("{:<8} {verdict:<7} {:>7.1} s  {}\n", done.name, done.took.as_secs_f64(), done.what)
    };
    let total: Duration = all.iter().map(|done| done.took).sum();
    let lines: String = all.iter().map(line).collect();
    format!("{lines}{:<8} {:<7} {:>7.1} s\n", "total", "", total.as_secs_f64())
}

/// Passed and failed tests by the first line of a JUnit report that has both: `<testsuites … tests="9"
/// failures="1" …>`.
pub(crate) fn counts(report: &str) -> Option<(u64, u64)> {
    let head = report.split_once("<testsuites ")?.1.split_once('>')?.0;
    let value = |name: &str| head.split_once(&format!("{name}=\""))?.1.split('"').next()?.parse::<u64>().ok();
    let failed = value("failures")? + value("errors")?;
    Some((value("tests")?.checked_sub(failed)?, failed))
}

fn fmt() -> Result<()> {
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]))
}

fn tidy_all() -> Result<()> {
    tidy::run(&tidy::Args::default())
}

fn clippy() -> Result<()> {
    let args = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    shell::run(&mut shell::cargo(&args))
}

/// Off by default, so the other steps do not build it.
fn s3() -> Result<()> {
    shell::run(&mut shell::cargo(&["test", "--locked", "-p", "tidemill-payloads", "--features", "s3", "--test", "s3"]))
}

/// Off by default, as the one above. A real collector in the test is told of real processes.
fn otlp() -> Result<()> {
    let packages =
        ["-p", "tidemill-common", "-p", "tidemill-producer", "-p", "tidemill-worker", "-p", "tidemill-tests"];
    let features = ["--locked", "--features", "tidemill-common/otlp,tidemill-tests/otlp"];
    shell::run(shell::cargo(&["clippy"]).args(packages).args(features).args([
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    shell::run(&mut shell::cargo(&[
        "test",
        "--locked",
        "-p",
        "tidemill-common",
        "--features",
        "otlp",
        "--lib",
        "trace",
    ]))?;
    shell::run(&mut shell::cargo(&["test", "--locked", "-p", "tidemill-tests", "--features", "otlp", "--test", "otlp"]))
}

fn doc() -> Result<()> {
    let args = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
    shell::run(shell::cargo(&args).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Without `advisories`: that database comes from a git host which CI machines may not reach. `cargo deny check`
/// by hand has it.
fn deny() -> Result<()> {
    eprintln!(
        "note: the advisory database is not checked here; run `cargo deny check advisories` where it can be fetched"
    );
    shell::run(&mut tools::DENY.command(&[
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ])?)
}

fn tests() -> Result<()> {
    test::nextest(PROFILE, &[])
}
