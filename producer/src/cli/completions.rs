//! `producer completions`: a shell's completion script.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::exit::{Exit, Outcome};
use super::output::Out;

const EXAMPLES: &str = "Examples:
  producer completions bash > ~/.local/share/bash-completion/completions/producer
  producer completions fish > ~/.config/fish/completions/producer.fish
";

/// Print a shell's completion script
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &Out) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::args::Args::command(), "producer", &mut script);
    out.line(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
