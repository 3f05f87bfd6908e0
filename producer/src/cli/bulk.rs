//! `producer submit --ndjson`: many tasks, an answer a line, and a summary that says how to go on.

use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tidemill_producer::{Error, Receipt, Taken, TaskId};

use super::Context;
use super::codes::Code;
use super::exit::{Exit, Failure, Outcome, chain, code_of};
use super::facts::ServerClock;
use super::lines::{Input, Line, Reading};
use super::output::{Format, printable};
use super::submit::Args;

/// Problems that the summary lists, and that are shown to people.
const PROBLEMS_LISTED: usize = 100;
const PROBLEMS_SHOWN: u64 = 20;

/// One line's answer.
#[derive(Debug, Serialize)]
struct AnswerView {
    line: u64,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// What all came to.
#[derive(Debug, Default, Serialize)]
struct Summary {
    lines: u64,
    accepted: u64,
    replaced: u64,
    duplicate: u64,
    refused: u64,
    invalid: u64,
    unknown: u64,
    last_line: u64,
    seconds: f64,
    problems: Vec<AnswerView>,
    #[serde(skip)]
    unreachable: Option<String>,
    /// The first and the last line of unknown outcome.
    #[serde(skip)]
    unknown_lines: Option<(u64, u64)>,
}

impl Summary {
    fn problem_count(&self) -> u64 {
        self.refused + self.invalid + self.unknown
    }

    /// Duplicates are in, which is what was wanted, unless they were to be refused.
    fn exit(&self, fail_on_duplicate: bool) -> Exit {
        let (good, twice) = if fail_on_duplicate {
            (self.accepted + self.replaced, self.duplicate)
        } else {
            (self.accepted + self.replaced + self.duplicate, 0)
        };
        match (good, self.problem_count() + twice) {
            (_, 0) => Exit::Ok,
            (0, _) if self.unknown > 0 => Exit::Unreachable,
            (0, _) if self.refused + twice > 0 => Exit::Refused,
            (0, _) => Exit::Usage,
            _ => Exit::PartlyAccepted,
        }
    }

    fn words(&self) -> String {
        let parts = [
            (self.replaced, "replaced"),
            (self.duplicate, "duplicate"),
            (self.refused, "refused"),
            (self.invalid, "invalid"),
            (self.unknown, "of unknown outcome"),
        ];
        let rest: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}")).collect();
        format!("{} accepted{rest}", self.accepted)
    }
}

pub(crate) async fn run(args: Args, path: &Path, context: &Context) -> Outcome {
    let input = Input::open(path)?;
    let client = context.connect().await?;
    let clock = ServerClock::new(client.counts().await?.now_ms);
    let bar = progress(input.bytes, context);
    let chunks = input.read(Reading {
        agent: args.agent,
        defaults: args.facts,
        from_line: args.from_line.max(1),
        strict: args.strict,
        payload_bytes_max: context.config.submit.payload_bytes_max,
        clock,
    });
    let began = Instant::now();
    let lines =
        stream::unfold(chunks, |mut chunks| async move { Some((chunks.recv().await?, chunks)) }).flat_map(stream::iter);
    let stopped = context.interrupt.clone();
    let until = async move { stopped.told(1).await };
    let mut answers = client.submit_tagged(lines.take_until(Box::pin(until)));

    let mut report = Report { context, bar, summary: Summary::default(), out: BufWriter::new(io::stdout()) };
    loop {
        // What was written goes out when there is nothing more to write at once.
        let next = match answers.next().now_or_never() {
            Some(next) => next,
            None => {
                report.out.flush()?;
                answers.next().await
            }
        };
        let Some((line, answer)) = next else { break };
        report.answer(line, answer)?;
    }
    report.out.flush()?;
    report.bar.finish_and_clear();
    let interrupted = context.interrupt.told(1).now_or_never().is_some();
    let mut summary = report.summary;
    summary.seconds = began.elapsed().as_secs_f64();
    close(&summary, args.fail_on_duplicate, interrupted, context)
}

/// Says what all came to, and how to go on.
fn close(summary: &Summary, fail_on_duplicate: bool, interrupted: bool, context: &Context) -> Outcome {
    let out = &context.out;
    match out.format {
        Format::Table => out.line(&format!("{} in {:.1} s", summary.words(), summary.seconds))?,
        Format::Json => out.json(summary)?,
        Format::Ndjson => out.note(&format!("{} in {:.1} s", summary.words(), summary.seconds)),
    }
    if summary.problem_count() > PROBLEMS_SHOWN && out.format != Format::Ndjson {
        out.note(&format!("{} more problems; --output ndjson shows all", summary.problem_count() - PROBLEMS_SHOWN));
    }
    let unsure = summary.unknown_lines.map_or_else(String::new, |(first, last)| {
        format!(
            "\n  of unknown outcome, between lines {first} and {last}: `producer status` knows those ids that are in \
             (--output ndjson shows them); lines with a key or an id of their own can simply be sent again"
        )
    });
    let on =
        format!("{}{unsure}\n  to go on: the same command with --from-line {}", summary.words(), summary.last_line + 1);
    if interrupted {
        return Err(Failure::new(Exit::Interrupted, Code::Interrupted, format!("interrupted: {on}")));
    }
    match (&summary.unreachable, summary.exit(fail_on_duplicate)) {
        (Some(why), exit) => {
            let text = format!("stopped, since Redis does not answer as it should ({why}): {on}");
            Err(Failure::new(exit, Code::NoAnswer, text))
        }
        (None, Exit::Ok) => Ok(Exit::Ok),
        (None, exit) => Err(Failure::new(exit, Code::Partly, summary.words())),
    }
}

fn progress(bytes: Option<u64>, context: &Context) -> ProgressBar {
    // On one terminal, result lines and a bar would overwrite each other.
    let crowded = context.out.terminal && context.out.format == Format::Ndjson;
    if context.out.quiet || crowded {
        return ProgressBar::hidden();
    }
    // Stderr that is no terminal hides it by itself.
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::with_draw_target(Some(bytes), target), "{wide_bar} {percent:>3}%  {msg}  {eta}"),
        None => (ProgressBar::with_draw_target(None, target), "{spinner} {msg}  {elapsed}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = bar.with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

struct Report<'a> {
    context: &'a Context,
    bar: ProgressBar,
    summary: Summary,
    out: BufWriter<io::Stdout>,
}

impl Report<'_> {
    fn answer(&mut self, line: Line, answer: Option<Result<Receipt, Error>>) -> io::Result<()> {
        let view = view(&line, answer.as_ref());
        let summary = &mut self.summary;
        summary.lines += 1;
        summary.last_line = line.number;
        match view.outcome {
            "accepted" => summary.accepted += 1,
            "replaced" => summary.replaced += 1,
            "duplicate" => summary.duplicate += 1,
            "invalid" => summary.invalid += 1,
            "unknown" => summary.unknown += 1,
            _ => summary.refused += 1,
        }
        if view.outcome == "unknown" {
            let first = summary.unknown_lines.map_or(line.number, |(first, _)| first);
            summary.unknown_lines = Some((first, line.number));
        }
        if view.outcome == "unknown" || matches!(answer, Some(Err(Error::NotNow { .. }))) {
            summary.unreachable = answer.and_then(Result::err).as_ref().and_then(std::error::Error::source).map(chain);
        }
        self.bar.set_position(line.end);
        if summary.lines.is_multiple_of(256) {
            self.bar.set_message(summary.words());
        }
        if self.context.out.format == Format::Ndjson {
            serde_json::to_writer(&mut self.out, &view)?;
            return self.out.write_all(b"\n");
        }
        if let Some(error) = &view.error {
            if summary.problem_count() <= PROBLEMS_SHOWN {
                let text = format!("line {}: {}: {}", view.line, view.outcome, printable(error));
                self.bar.suspend(|| self.context.out.note(&text));
            }
            if summary.problems.len() < PROBLEMS_LISTED {
                summary.problems.push(view);
            }
        }
        Ok(())
    }
}

/// A line's answer as it is shown.
fn view(line: &Line, answer: Option<&Result<Receipt, Error>>) -> AnswerView {
    let of = |outcome, id: Option<&TaskId>, error| AnswerView {
        line: line.number,
        outcome,
        id: id.cloned(),
        code: None,
        error,
        retry_after_ms: None,
    };
    let error = match answer {
        None => {
            let code = Some(Code::NoTask.to_string());
            return AnswerView { code, ..of("invalid", None, Some(line.wrong.clone().unwrap_or_default())) };
        }
        Some(Ok(receipt)) => {
            // An id made here is new: if it is in already, our own first try had brought it there.
            let outcome = match receipt.taken() {
                Taken::Duplicate if line.made_id.as_ref() != Some(receipt.id()) => "duplicate",
                Taken::Replaced => "replaced",
                Taken::New | Taken::Duplicate => "accepted",
            };
            return of(outcome, Some(receipt.id()), None);
        }
        Some(Err(error)) => error,
    };
    let text = Some(error.to_string());
    let view = match error {
        Error::Invalid(_) => of("invalid", None, text),
        Error::Conflict { id } => of("conflict", Some(id), text),
        Error::Full { retry_after, .. } => {
            let retry_after_ms = u64::try_from(retry_after.as_millis()).ok();
            AnswerView { retry_after_ms, ..of("full", None, text) }
        }
        Error::ServerFull => of("full", None, text),
        Error::NotNow { .. } => of("refused", None, Some(chain(error))),
        Error::Unknown { id, .. } | Error::Failed { id, .. } => of("unknown", Some(id), Some(chain(error))),
        _ => of("refused", None, text),
    };
    AnswerView { code: Some(code_of(error).to_string()), ..view }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_says_how_much_was_accepted() {
        let exit = |accepted, duplicate, refused, invalid, unknown| {
            Summary { accepted, duplicate, refused, invalid, unknown, ..Summary::default() }.exit(false)
        };
        assert_eq!(exit(0, 0, 0, 0, 0), Exit::Ok);
        assert_eq!(exit(2, 1, 0, 0, 0), Exit::Ok);
        assert_eq!(exit(2, 0, 0, 1, 0), Exit::PartlyAccepted);
        assert_eq!(exit(2, 0, 0, 0, 3), Exit::PartlyAccepted);
        assert_eq!(exit(0, 0, 1, 1, 0), Exit::Refused);
        assert_eq!(exit(0, 0, 0, 1, 0), Exit::Usage);
        assert_eq!(exit(0, 0, 1, 1, 1), Exit::Unreachable);
        let twice = Summary { accepted: 1, duplicate: 1, ..Summary::default() };
        assert_eq!((twice.exit(false), twice.exit(true)), (Exit::Ok, Exit::PartlyAccepted));
    }
}
