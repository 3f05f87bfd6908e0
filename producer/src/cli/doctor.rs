//! `producer doctor`: checks the server and what is on it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tidemill_common::store::{self, SCHEMA};
use tidemill_producer::{Client, Counts, Error};

use super::Context;
use super::exit::{Exit, Outcome};
use super::output::Paint;
use super::words::span;

/// Slower than this, every claim and settle is slow.
const ROUND_TRIP_SLOW: Duration = Duration::from_millis(50);
/// Clocks further apart than this confuse whoever reads logs; nothing depends on them.
const CLOCKS_APART_MS: u64 = 5_000;

const EXAMPLES: &str = "Examples:
  producer doctor
  producer doctor --redis redis://host:6379 --output json | jq '.checks[] | select(.verdict != \"ok\")'
";

/// Check the server and what is on it
///
/// JSON fields: ok; checks (name, verdict: good, care or bad; text). Exit code 1 when a check is bad, 7 when Redis cannot be
/// reached.
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    Care,
    Bad,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    text: String,
}

#[derive(Debug, Serialize)]
struct View {
    ok: bool,
    checks: Vec<Check>,
}

fn check(name: &'static str, verdict: Verdict, text: impl Into<String>) -> Check {
    Check { name, verdict, text: text.into() }
}

pub(crate) async fn run(_args: &Args, context: &Context) -> Outcome {
    let url = context.config.redis.shown_url();
    let checks = match Client::connect(context.config.options()).await {
        Ok(client) => {
            let mut checks = vec![
                check("reachable", Verdict::Good, url),
                check("server", Verdict::Good, "new enough: Redis 7.0 or Valkey 7.2 at least"),
                check("policy", Verdict::Good, "no keys are evicted, as far as the server lets us see"),
                check("layout", Verdict::Good, format!("{SCHEMA}, the one that this build reads")),
            ];
            checks.extend(ask(&client).await?);
            checks
        }
        Err(Error::Store(store::Error::Unsuitable(text))) => {
            vec![check("reachable", Verdict::Good, url), check("server", Verdict::Bad, text)]
        }
        Err(error) => return Err(error.into()),
    };
    let ok = checks.iter().all(|check| check.verdict != Verdict::Bad);
    if context.out.is_table() {
        for Check { name, verdict, text } in &checks {
            let (paint, word) = match verdict {
                Verdict::Good => (Paint::Good, "good"),
                Verdict::Care => (Paint::Care, "care"),
                Verdict::Bad => (Paint::Bad, "bad "),
            };
            context.out.line(&format!("{}  {name:<10} {text}", context.out.paint(paint, word)))?;
        }
    } else {
        context.out.json(&View { ok, checks })?;
    }
    Ok(if ok { Exit::Ok } else { Exit::Failure })
}

async fn ask(client: &Client) -> Result<Vec<Check>, Error> {
    // The first call may have to send the script's text.
    client.counts().await?;
    let began = Instant::now();
    let counts = client.counts().await?;
    let took = began.elapsed();
    let quick = if took < ROUND_TRIP_SLOW { Verdict::Good } else { Verdict::Care };
    let mut checks = vec![
        check("round trip", quick, format!("{:.1} ms", took.as_secs_f64() * 1e3)),
        clocks(&counts),
        workers(&counts),
    ];
    let waiting: u64 = counts.waiting.values().sum();
    checks.push(check(
        "tasks",
        Verdict::Good,
        format!(
            "{waiting} waiting (of which {} scheduled, {} parked), {} running",
            counts.scheduled, counts.parked, counts.running
        ),
    ));
    let dead = if counts.dead == 0 { Verdict::Good } else { Verdict::Care };
    checks.push(check("dead", dead, format!("{} kept for replay", counts.dead)));
    if let Some(unread) = counts.ended.get("quarantined").filter(|n| **n > 0) {
        checks.push(check("quarantine", Verdict::Care, format!("{unread} tasks could not be read and were put aside")));
    }
    Ok(checks)
}

fn clocks(counts: &Counts) -> Check {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let here_ms = u64::try_from(here.as_millis()).unwrap_or(u64::MAX);
    let apart = here_ms.abs_diff(counts.now_ms);
    if apart < CLOCKS_APART_MS {
        check("clocks", Verdict::Good, "this machine's and the server's agree")
    } else {
        let text = format!("this machine's and the server's are {} apart; decisions use the server's", span(apart));
        check("clocks", Verdict::Care, text)
    }
}

fn workers(counts: &Counts) -> Check {
    let waiting: u64 = counts.waiting.values().sum();
    match counts.workers {
        0 if waiting > 0 => check(
            "workers",
            Verdict::Bad,
            format!("none is alive, and {waiting} tasks wait: start one with `worker run`"),
        ),
        0 => check(
            "workers",
            Verdict::Care,
            "none is alive: start one with `worker run`, or `worker dev` on this machine",
        ),
        n => check("workers", Verdict::Good, format!("{n} alive, {} idle", counts.idle)),
    }
}
