//! What is printed, where and how: results on stdout, all else on stderr.

use std::env;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

use super::codes::Code;

/// Below this many columns a table is not wrapped: it would be one letter wide.
const WIDTH_MIN: u16 = 60;

/// The form of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; the default on a terminal.
    Table,
    /// One JSON value; the default elsewhere.
    Json,
    /// One JSON value a line, as soon as it is there.
    Ndjson,
}

/// Whether to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set; with `CLICOLOR_FORCE`, always.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A colour with a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Good,
    Bad,
    Care,
    Faint,
}

impl Paint {
    const fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Care => "33",
            Self::Faint => "2",
        }
    }
}

/// Where everything goes.
#[derive(Debug, Clone)]
pub(crate) struct Out {
    /// The form of results.
    pub(crate) format: Format,
    /// The form that was asked for, if one was.
    pub(crate) asked: Option<Format>,
    /// Nothing but results and errors.
    pub(crate) quiet: bool,
    /// Stdout is a terminal: what a task said must not steer it.
    pub(crate) terminal: bool,
    color_out: bool,
    color_err: bool,
}

impl Out {
    pub(crate) fn new(format: Option<Format>, color: Color, quiet: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let asked = format;
        let format = asked.unwrap_or(if terminal { Format::Table } else { Format::Json });
        let color_out = colored(color, terminal);
        let color_err = on_stderr(color);
        Self { format, asked, quiet, terminal, color_out, color_err }
    }

    pub(crate) fn is_table(&self) -> bool {
        self.format == Format::Table
    }

    /// A line of result.
    pub(crate) fn line(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// A result as JSON: indented, or in one line for `ndjson`.
    pub(crate) fn json<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let text = match self.format {
            Format::Ndjson => serde_json::to_string(value),
            Format::Json | Format::Table => serde_json::to_string_pretty(value),
        };
        self.line(&text?)
    }

    /// Results as JSON: one as it is, several as a list; for `ndjson` a line each.
    pub(crate) fn json_each<T: Serialize>(&self, values: &[T]) -> io::Result<()> {
        match (self.format, values) {
            (Format::Ndjson, _) => values.iter().try_for_each(|value| self.json(value)),
            (_, [one]) => self.json(one),
            _ => self.json(&values),
        }
    }

    /// A table for people. What tasks said in it is to be made [`printable`] before.
    pub(crate) fn table(&self, header: &[&str], rows: Vec<Vec<String>>) -> io::Result<()> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        // Some terminals do not know how wide they are, and say nothing, or 0.
        if table.width().is_some_and(|columns| columns >= WIDTH_MIN) {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        table.set_header(header.iter().map(|h| self.paint(Paint::Faint, h)));
        for row in rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        // An id that is wrapped cannot be copied.
        if let Some(first) = table.column_mut(0) {
            first.set_constraint(ColumnConstraint::ContentWidth);
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        self.line(&lines.join("\n"))
    }

    /// A remark, unless there are to be none.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.warn(text);
        }
    }

    /// A remark that is always made.
    pub(crate) fn warn(&self, text: &str) {
        // Nobody is left to tell when stderr is gone.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// The last words of a program that failed.
    pub(crate) fn error(&self, code: Code, text: &str) {
        let (on, off) = if self.color_err { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
        self.warn(&format!("{on}error[{code}]:{off} {text}"));
    }

    /// Text for stdout in a colour, if there are colours.
    pub(crate) fn paint(&self, paint: Paint, text: &str) -> String {
        if self.color_out { format!("\u{1b}[{}m{text}\u{1b}[0m", paint.code()) } else { text.to_owned() }
    }
}

/// Whether stderr gets colours.
pub(crate) fn on_stderr(color: Color) -> bool {
    colored(color, io::stderr().is_terminal())
}

/// Whether a stream gets colours; see <https://no-color.org> and <https://bixense.com/clicolors>.
fn colored(color: Color, terminal: bool) -> bool {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) => false,
        Color::Auto => set("CLICOLOR_FORCE") || (terminal && env::var_os("TERM").is_none_or(|term| term != "dumb")),
    }
}

/// Text from a task or a server, made fit for a terminal: control characters are written out.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() && char != '\n' && char != '\t' {
            shown.extend(char.escape_default())
        } else {
            shown.push(char)
        }
    }
    shown
}

/// A text in one line: line ends and tabs are spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text of at most so many characters; what is cut off is an ellipsis.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// How wide a table's last column may be so that no line is wrapped; none when nobody knows how wide the terminal is.
pub(crate) fn last_column(header: &[&str], rows: &[Vec<String>]) -> Option<usize> {
    const BETWEEN: usize = 2;
    let whole = Table::new().width().filter(|columns| *columns >= WIDTH_MIN)?;
    let columns = header.len().saturating_sub(1);
    let widest = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([header[at].len()]).max().unwrap_or(0)
    };
    let others: usize = (0..columns).map(|at| widest(at) + BETWEEN).sum();
    Some(usize::from(whole).saturating_sub(others + BETWEEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_says_cannot_steer_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\r\u{0}c\n"), "a\\u{1b}[2Jb\\r\\u{0}c\n");
    }

    #[test]
    fn texts_are_cut_between_letters() {
        assert_eq!((cut("été", 3), cut("étés", 3)), ("été".to_owned(), "ét…".to_owned()));
        assert_eq!(one_line("a\n\n  b\t"), "a b");
    }

    #[test]
    fn colours_are_asked_for_or_on_a_terminal() {
        assert!(colored(Color::Always, false));
        assert!(!colored(Color::Never, true));
    }
}
