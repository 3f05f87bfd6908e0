//! `producer man`: manual pages, made of what `--help` says.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use super::exit::{Exit, Failure, Outcome};
use super::output::Out;

const EXAMPLES: &str = "Examples:
  producer man | man -l -                          read all of it
  producer man --dir ~/.local/share/man/man1       a page a verb: man producer, man producer-submit, …
";

/// Print manual pages, in roff
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write a page for each verb into this directory, and print nothing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &Out) -> Outcome {
    let mut pages = Vec::new();
    let mut command = super::args::Args::command();
    command.build();
    collect(command, &mut pages)?;
    match &args.dir {
        Some(dir) => write(dir, &pages)?,
        None => pages.iter().try_for_each(|(_, page)| out.line(&String::from_utf8_lossy(page)))?,
    }
    Ok(Exit::Ok)
}

/// The page of a verb, then those of the verbs below it.
fn collect(command: Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    // With its parents: `producer-dead-list`.
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let below: Vec<Command> =
        command.get_subcommands().filter(|c| c.get_name() != "help" && !c.is_hide_set()).cloned().collect();
    let command = command.disable_help_subcommand(true);
    let said = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let (examples, more) = (said(command.get_before_long_help()), said(command.get_after_long_help()));
    let man = Man::new(command).title(&name);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    as_written("EXAMPLES", examples.strip_prefix("Examples:\n").unwrap_or(&examples), &mut page);
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if !below.is_empty() {
        man.render_subcommands_section(&mut page)?;
    }
    as_written("MORE", &more, &mut page);
    pages.push((name, page));
    below.into_iter().try_for_each(|verb| collect(verb, pages))
}

/// A section whose lines stay as they are.
fn as_written(title: &str, text: &str, page: &mut Vec<u8>) {
    if text.trim().is_empty() {
        return;
    }
    let mut section = format!(".SH {title}\n.nf\n");
    for line in text.trim_end().lines() {
        // A line that began with one of these would be a command.
        let mark = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        section.push_str(&format!("{mark}{}\n", line.replace('\\', "\\e").replace('-', "\\-")));
    }
    section.push_str(".fi\n");
    page.extend_from_slice(section.as_bytes());
}

fn write(dir: &Path, pages: &[(String, Vec<u8>)]) -> Result<(), Failure> {
    std::fs::create_dir_all(dir)?;
    pages.iter().try_for_each(|(name, page)| std::fs::write(dir.join(format!("{name}.1")), page))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_cannot_be_a_command_of_roff() {
        let mut page = Vec::new();
        as_written("X", ".SH a\n'b \\n -c\n", &mut page);
        assert_eq!(String::from_utf8(page).unwrap(), ".SH X\n.nf\n\\&.SH a\n\\&'b \\en \\-c\n.fi\n");
    }
}
