//! `cargo xtask cases`: the cases alone, one after the other, also in their full form.

use anyhow::{Result, ensure};
use tidemill_embedded::ENV_SERVER_BIN;

use crate::{setup, shell, tools};

/// The nextest profile: patient, and shows what passed cases print.
const PROFILE: &str = "cases";
/// What `tests/src/lab/profile.rs` reads.
const ENV_CASES: &str = "TIDEMILL_CASES";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ids, such as L-01 or kill; all cases when none is named
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// The full form: real counts and times, instead of those of the suite
    #[arg(long)]
    full: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let filter = filter(&args.ids)?;
    let server = setup::ready()?;
    shell::run(&mut shell::cargo(&["build", "--workspace", "--bins", "--locked"]))?;
    let mut run = tools::NEXTEST.command(&["run", "--package", "tidemill-tests", "--locked", "--profile", PROFILE])?;
    run.args(["-E", &filter]).env(ENV_SERVER_BIN, server.path());
    if args.full {
        run.env(ENV_CASES, "full");
    }
    shell::run(&mut run)
}

/// The tests of these ids: `L-01` is `cases::l_01::…`.
fn filter(ids: &[String]) -> Result<String> {
    if ids.is_empty() {
        return Ok("test(/^cases::/)".to_owned());
    }
    let mut names = Vec::new();
    for id in ids {
        let name = id.to_lowercase().replace('-', "_");
        ensure!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{id:?} is no id of a case; one is L-01");
        names.push(name);
    }
    Ok(format!("test(/^cases::({})::/)", names.join("|")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_modules_of_tests() {
        assert_eq!(filter(&[]).unwrap(), "test(/^cases::/)");
        assert_eq!(filter(&["L-01".into(), "kill".into()]).unwrap(), "test(/^cases::(l_01|kill)::/)");
        assert!(filter(&["a)".into()]).is_err());
    }
}
