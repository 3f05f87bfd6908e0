//! A worker as an application would write it, for the cases: its handlers do as their payload says and write down what they did.
//!
//! `lab_worker JSON`, where the JSON is a `tidemill_tests::lab::Setup`. Exit codes as those of `worker run`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tidemill_tests::lab::{End, Line, Mode, Payload, QUIET, Setup, Writer, now_ms};
use tidemill_worker::{Context, Exit, Handle, Options, Outcome, Registry, Shutdown, Spend, Worker, lone};

fn main() -> anyhow::Result<ExitCode> {
    tidemill_common::telemetry::init("tidemill-lab");
    let setup: Setup = serde_json::from_str(&std::env::args().nth(1).context("usage: lab_worker JSON")?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let exit = runtime.block_on(run(&setup))?;
    Ok(ExitCode::from(match exit {
        Exit::Drained => 0,
        Exit::HandedBack(_) => 75,
        Exit::Forced => 130,
        Exit::LeaseLost => 1,
    }))
}

async fn run(setup: &Setup) -> anyhow::Result<Exit> {
    let book = Arc::new(Book::open(&setup.ledger)?);
    let mut registry = Registry::new();
    for agent in &setup.agents {
        let book = Arc::clone(&book);
        registry = registry.with(agent.parse()?, move |context| handle(Arc::clone(&book), context));
    }
    let ms = Duration::from_millis;
    let options = Options {
        name: setup.name.clone(),
        concurrency: setup.concurrency,
        lease: ms(setup.lease_ms),
        renew: ms(setup.renew_ms),
        sweep: ms(setup.sweep_ms),
        grace: ms(setup.grace_ms),
        poison_after: setup.poison_after,
        ..Options::default()
    };
    let worker = Worker::new(setup.redis.clone(), registry, options)?;
    let _ = book.worker.set(worker.handle());
    Ok(worker.run(Shutdown::on_signals()?).await?)
}

/// Where runs are written down.
struct Book {
    writer: Writer,
    worker: OnceLock<Handle>,
    lone: bool,
}

impl Book {
    fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { writer: Writer::open(path)?, worker: OnceLock::new(), lone: lone::is_child() })
    }

    fn start(self: Arc<Self>, context: &Context) -> Written {
        let line = Line {
            end: None,
            id: context.id().to_string(),
            agent: context.task().agent.to_string(),
            attempt: context.attempt(),
            losses: context.losses(),
            fence: context.fence().0,
            worker: self.worker.get().map(|worker| worker.id().to_string()).unwrap_or_default(),
            pid: std::process::id(),
            lone: self.lone,
            at: now_ms(),
        };
        let written = Written { book: self, line };
        written.append();
        written
    }
}

/// A run that is written down; its end as well, in any case but the death of the process.
struct Written {
    book: Arc<Book>,
    line: Line,
}

impl Written {
    fn append(&self) {
        if self.line.agent != QUIET
            && let Err(error) = self.book.writer.append(&self.line)
        {
            eprintln!("the ledger cannot be written: {error}");
        }
    }
    fn end(mut self, end: End, outcome: Outcome) -> Outcome {
        self.line.end = Some(end);
        outcome
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.line.end.get_or_insert(End::Dropped);
        self.line.at = now_ms();
        self.append();
    }
}

async fn handle(book: Arc<Book>, context: Context) -> Outcome {
    let run = book.start(&context);
    let told: Payload = match serde_json::from_slice(context.payload()) {
        Ok(told) => told,
        Err(error) => return run.end(End::Dead, Outcome::dead(format!("the payload is not understood: {error}"))),
    };
    let takes = Duration::from_millis(told.ms);
    let costs = told.costs.unwrap_or(0);
    let spend = |part: u64| told.costs.iter().for_each(|_| context.spend(Spend::micro_usd(part)));
    spend(costs / 2);
    if told.mode == Mode::Busy {
        let until = Instant::now() + takes;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    } else if told.mode == Mode::Deaf {
        tokio::time::sleep(takes).await;
    } else if told.ms > 0 && context.cancellation().run_until_cancelled(tokio::time::sleep(takes)).await.is_none() {
        return run.end(End::Cut, Outcome::retry("told to stop"));
    }
    spend(costs - costs / 2);
    match told.mode {
        Mode::Sleep | Mode::Busy | Mode::Deaf => run.end(End::Done, Outcome::done(r#"{"done":true}"#)),
        Mode::FailOnce if context.attempt() > 1 => run.end(End::Done, Outcome::done(r#"{"done":true}"#)),
        Mode::FailOnce | Mode::Fail => run.end(
            End::Retry,
            Outcome::Retry { error: "told to fail".into(), after: told.after_ms.map(Duration::from_millis) },
        ),
        Mode::Throttled => {
            let until = Duration::from_millis(told.after_ms.unwrap_or(100));
            run.end(End::Throttled, Outcome::Throttled { error: "told to wait".into(), until })
        }
        Mode::Dead => run.end(End::Dead, Outcome::dead("told to die")),
        Mode::Panic => panic!("told to panic"),
        Mode::Abort => std::process::abort(),
    }
}
