//! A child's life: hello, ready, tasks, and one of several ends.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use tidemill_common::name::AgentName;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::child::{Child, describe};
use super::flights::{Flight, Flights};
use super::lines::{LINE_BYTES_MAX, LastWords, Read, log, read_line};
use super::pool::{Request, SHORTLY};
use super::seat::Seat;
use super::wire::{self, Said, Word};
use super::{Outcome, ProcessOptions};

/// How long a child may take to answer a task that was called off, or to see the end of its input, before SIGTERM.
const ASKED_FOR: Duration = Duration::from_millis(200);
/// How long it may take from SIGTERM to its end, before SIGKILL. Together well below the 500 ms that are promised.
pub(super) const TERMED_FOR: Duration = Duration::from_millis(200);
/// How long what a dead child has said is read on.
const LAST_WORDS_FOR: Duration = Duration::from_millis(200);
/// Lines read ahead.
const LINES_AHEAD: usize = 16;

/// How a child's life ended.
pub(super) struct End {
    /// It had answered something.
    pub(super) worked: bool,
    /// It was we who ended it, and not for a fault of its own.
    pub(super) well: bool,
}

/// Why we end a child.
enum Why {
    CalledOff,
    Unready,
    Closing,
    Broken(String),
}

enum Stage {
    Starting(Instant),
    Serving,
    /// Its input is closed, or a signal was sent: what comes next, and when.
    Ending(Why, Option<(Instant, Signal)>),
}

/// A running child.
pub(super) struct Live {
    agent: AgentName,
    child: Child,
    ready_within: Duration,
    input: Option<mpsc::Sender<Vec<u8>>>,
    output: mpsc::Receiver<Result<Said, String>>,
    /// When its output was closed; it should end soon after.
    output_closed: Option<Instant>,
    last_words: LastWords,
    flights: Flights,
    stage: Stage,
    answered: u64,
    /// Output that waits for room.
    emitting: Option<BoxFuture<'static, ()>>,
}

impl Live {
    /// Starts a child; it is not ready yet.
    pub(super) fn start(agent: &AgentName, options: &ProcessOptions) -> io::Result<Self> {
        let (child, pipes) = Child::spawn(options, &[])?;
        let (input, lines) = mpsc::channel(2 * options.slots + 2);
        let (said, output) = mpsc::channel(LINES_AHEAD);
        let last_words = LastWords::default();
        // These three end with the child's pipes.
        tokio::spawn(write(pipes.input, lines));
        tokio::spawn(read(pipes.output, said));
        tokio::spawn(log(agent.clone(), child.pid(), pipes.errors, last_words.clone()));
        let _ = input.try_send(wire::hello(agent, options.slots));
        tracing::debug!(%agent, pid = child.pid(), "a child was started");
        Ok(Self {
            agent: agent.clone(),
            child,
            ready_within: options.ready_within,
            input: Some(input),
            output,
            output_closed: None,
            last_words,
            flights: Flights::default(),
            stage: Stage::Starting(Instant::now() + options.ready_within),
            answered: 0,
            emitting: None,
        })
    }

    /// Gives it tasks until it ends.
    pub(super) async fn serve(mut self, seat: &mut Seat, first: Request, stop: &CancellationToken) -> End {
        self.flights.begin(first);
        let ended = loop {
            let (next_step, open) = (self.next_step(), !matches!(self.stage, Stage::Ending(..)));
            tokio::select! {
                ended = self.child.ended() => break ended,
                () = emitted(&mut self.emitting), if self.emitting.is_some() => self.emitting = None,
                said = self.output.recv(), if self.output_closed.is_none() && self.emitting.is_none() => match said {
                    Some(Ok(said)) => self.hear(said, seat),
                    Some(Err(strange)) => self.break_off(strange),
                    None => self.output_closed = Some(Instant::now()),
                },
                request = seat.next(), if open => match request {
                    Some(request) => self.take(request),
                    None => self.close(),
                },
                number = self.flights.next_called_off() => self.call_off(number),
                () = tokio::time::sleep_until(next_step.unwrap_or_else(Instant::now)), if next_step.is_some() => self.step(),
                () = stop.cancelled(), if open => self.close(),
            }
        };
        let heard_out = async {
            emitted(&mut self.emitting).await;
            while let Some(Ok(said)) = self.output.recv().await {
                self.hear(said, seat);
                emitted(&mut self.emitting).await;
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS_FOR, heard_out).await;
        self.bury(ended)
    }

    fn take(&mut self, request: Request) {
        let number = self.flights.begin(request);
        if matches!(self.stage, Stage::Serving) {
            self.send_task(number);
        }
    }

    fn send_task(&mut self, number: u64) {
        if let Some(flight) = self.flights.get(number) {
            flight.sent = true;
            let line = wire::task(number, &flight.request.context);
            self.send(line);
        }
    }

    fn send(&mut self, line: Vec<u8>) {
        match self.input.as_ref().map(|input| input.try_send(line)) {
            Some(Err(mpsc::error::TrySendError::Full(_))) => self.break_off("the child does not read its input".into()),
            // It has closed its input: it is ending, or will be made to when nothing comes of its tasks.
            Some(Ok(()) | Err(mpsc::error::TrySendError::Closed(_))) | None => {}
        }
    }

    fn hear(&mut self, said: Said, seat: &Seat) {
        match (said, &self.stage) {
            (Said::Ready, Stage::Starting(_)) => {
                self.stage = Stage::Serving;
                seat.note(true, false);
                let numbers: Vec<u64> = self.flights.unsent().map(|(number, _)| number).collect();
                for number in numbers {
                    self.send_task(number);
                }
            }
            (Said::Ready, _) => {}
            (Said::About(number, Word::Output(text)), _) => match self.flights.about(number) {
                // The child is not read further before there is room for this.
                Ok(Some(number)) => {
                    let context = self.flights.get(number).map(|flight| flight.request.context.clone());
                    self.emitting = context.map(|context| async move { context.emit(text).await }.boxed());
                }
                Ok(None) => {}
                Err(strange) => self.break_off(strange),
            },
            (Said::About(number, word), _) => match self.flights.about(number) {
                Ok(Some(number)) => self.answered += u64::from(self.flights.hear(number, word)),
                Ok(None) => tracing::debug!(agent = %self.agent, ?number, "a child speaks of a task that is over"),
                Err(strange) => self.break_off(strange),
            },
        }
    }

    fn call_off(&mut self, number: u64) {
        match self.flights.get(number) {
            Some(flight) if flight.sent => {
                flight.called_off = Some(Instant::now());
                self.send(wire::cancel(number));
            }
            Some(_) => {
                if let Some(flight) = self.flights.remove(number) {
                    flight.request.answer(Outcome::retry("called off before its child was ready"));
                }
            }
            None => {}
        }
    }

    /// Ends it by closing its input.
    fn close(&mut self) {
        self.input = None;
        self.stage = Stage::Ending(Why::Closing, Some((Instant::now() + ASKED_FOR, Signal::SIGTERM)));
    }

    /// Ends it at once: it cannot be understood any more.
    fn break_off(&mut self, what: String) {
        if !matches!(self.stage, Stage::Ending(..)) {
            self.child.signal(Signal::SIGKILL);
            self.stage = Stage::Ending(Why::Broken(what), None);
        }
    }

    /// When to look after it next, if nothing happens.
    fn next_step(&self) -> Option<Instant> {
        let patience = |since: Option<Instant>| since.map(|at| at + ASKED_FOR);
        match &self.stage {
            Stage::Starting(until) => [Some(*until), patience(self.output_closed)].into_iter().flatten().min(),
            Stage::Serving => {
                [patience(self.flights.first_called_off()), patience(self.output_closed)].into_iter().flatten().min()
            }
            Stage::Ending(_, next) => next.map(|(at, _)| at),
        }
    }

    fn step(&mut self) {
        let now = Instant::now();
        if let Stage::Ending(_, next) = &mut self.stage {
            if let Some((_, signal)) = next.take() {
                *next = (signal == Signal::SIGTERM).then_some((now + TERMED_FOR, Signal::SIGKILL));
                self.child.signal(signal);
            }
            return;
        }
        if self.output_closed.is_some_and(|at| now >= at + ASKED_FOR) {
            return self.break_off("the child closed its output and did not end".into());
        }
        let why = match self.stage {
            Stage::Starting(_) => Why::Unready,
            _ => Why::CalledOff,
        };
        self.child.signal(Signal::SIGTERM);
        self.stage = Stage::Ending(why, Some((now + TERMED_FOR, Signal::SIGKILL)));
    }

    /// Says what becomes of the tasks that it still had.
    fn bury(mut self, ended: io::Result<ExitStatus>) -> End {
        let pid = self.child.pid();
        let (how, by_itself) = match &ended {
            Ok(status) => (describe(*status), status.code().is_some()),
            Err(error) => (format!("cannot be awaited: {error}"), false),
        };
        let last_word = self.last_words.line();
        let died = if by_itself && !last_word.is_empty() {
            format!("the child died: {how}; it last said: {last_word}")
        } else {
            format!("the child died: {how}")
        };
        let later = |error: &str| Outcome::Throttled { error: error.to_owned(), until: SHORTLY };
        let unready = format!("the child was not ready within {:?}", self.ready_within);
        let outcome = |flight: &Flight| match &self.stage {
            _ if flight.called_off.is_some() => Outcome::retry("called off; its child was ended"),
            Stage::Serving | Stage::Starting(_) if flight.sent => Outcome::retry(died.clone()),
            Stage::Serving | Stage::Starting(_) => later(&died),
            Stage::Ending(Why::Broken(what), _) if flight.sent => Outcome::retry(what.clone()),
            Stage::Ending(Why::Broken(what), _) => later(what),
            Stage::Ending(Why::CalledOff, _) => later("its child was ended for another task that would not stop"),
            Stage::Ending(Why::Unready, _) => later(&unready),
            Stage::Ending(Why::Closing, _) => later("the worker stops"),
        };
        let left: Vec<Flight> = self.flights.take().collect();
        for flight in left {
            let outcome = outcome(&flight);
            flight.request.answer(outcome);
        }
        let agent = &self.agent;
        match &self.stage {
            Stage::Ending(Why::Closing, _) => tracing::debug!(%agent, pid, how, "a child ended"),
            Stage::Ending(Why::CalledOff, _) => {
                tracing::info!(%agent, pid, how, "a child was ended, since it did not stop a task")
            }
            Stage::Ending(Why::Unready, _) => tracing::error!(%agent, pid, how, "{unready}"),
            Stage::Ending(Why::Broken(what), _) => tracing::error!(%agent, pid, how, what, "a child was killed"),
            Stage::Serving | Stage::Starting(_) => tracing::warn!(%agent, pid, how, last_word, "a child died"),
        }
        let well = matches!(self.stage, Stage::Ending(Why::Closing | Why::CalledOff, _));
        End { worked: self.answered > 0, well }
    }
}

/// Writes lines to a child until there are no more or it takes no more; then its input ends.
async fn write(mut to: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Reads what a child says until there is no more, or something that is not of the protocol.
async fn read(from: ChildStdout, to: mpsc::Sender<Result<Said, String>>) {
    let mut from = BufReader::with_capacity(64 << 10, from);
    loop {
        let said = match read_line(&mut from, LINE_BYTES_MAX).await {
            Ok(Read::Line(line)) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(Read::Line(line)) => wire::read(&line),
            Ok(Read::Long(_)) => Err(format!("the child wrote a line of more than {LINE_BYTES_MAX} bytes")),
            Ok(Read::End) | Err(_) => return,
        };
        let strange = said.is_err();
        if to.send(said).await.is_err() || strange {
            return;
        }
    }
}

/// Completes when what is being emitted is.
async fn emitted(emitting: &mut Option<BoxFuture<'static, ()>>) {
    if let Some(emitting) = emitting {
        emitting.await;
    }
}
