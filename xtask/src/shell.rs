//! Running other programs, where they are shown before they run and fail loudly.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // Cargo says where this package is now; the compiled-in place is for running the binary without cargo.
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |named| root().join(named))
}

/// The cargo that runs us, in the root of the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut cmd = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cmd.args(args).current_dir(root());
    cmd
}

/// Shows the command on standard error and runs it, without standard input and with our outputs.
pub(crate) fn run(cmd: &mut Command) -> Result<()> {
    let shown = show(cmd);
    eprintln!("$ {shown}");
    let status = cmd.stdin(Stdio::null()).status().with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs the command and returns its standard output; an error holds its standard error.
pub(crate) fn output(cmd: &mut Command) -> Result<String> {
    let shown = show(cmd);
    let output = cmd.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn show(cmd: &Command) -> String {
    let program = Path::new(cmd.get_program()).file_name().unwrap_or(cmd.get_program());
    let words: Vec<_> = std::iter::once(program).chain(cmd.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
