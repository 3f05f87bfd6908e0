//! `producer doctor`: checks the server and what is on it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tidemill_common::store::{self, SCHEMA};
use tidemill_producer::{Client, Counts, Error, Priority, Repaired};

use super::exit::{Exit, Outcome};
use super::output::Paint;
use super::words::span;
use super::{Context, doctor_server, doctor_tasks, pause};

/// Slower than this, every claim and settle is slow.
const ROUND_TRIP_SLOW: Duration = Duration::from_millis(50);
/// Clocks further apart than this confuse whoever reads logs; nothing depends on them.
const CLOCKS_APART_MS: u64 = 5_000;

const EXAMPLES: &str = "Examples:
  producer doctor
  producer doctor --repair        also make anew what can be known from elsewhere: counts, and marks of lines and streams
  producer doctor --redis redis://host:6379 --output json | jq '.checks[] | select(.verdict != \"ok\")'
";

/// Check the server and what is on it
///
/// Without `--repair` it changes nothing. It looks at what waits and at the dead, for 5 s each at most.
///
/// JSON fields: ok; checks (name; verdict: ok, warn or bad; text; advice, or null). Exit code 1 when a check is bad, 7 when Redis
/// cannot be reached.
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Make anew what can be known from elsewhere: counts of what waits, and marks of lines and streams
    #[arg(long)]
    repair: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    Warn,
    Bad,
}

#[derive(Debug, Serialize)]
pub(crate) struct Check {
    name: &'static str,
    pub(crate) verdict: Verdict,
    text: String,
    advice: Option<String>,
}

#[derive(Debug, Serialize)]
struct View {
    ok: bool,
    checks: Vec<Check>,
}

pub(crate) fn check(name: &'static str, verdict: Verdict, text: impl Into<String>) -> Check {
    Check { name, verdict, text: text.into(), advice: None }
}

impl Check {
    /// What to do about it.
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    let url = context.config.redis.shown_url();
    let checks = match Client::connect(context.config.options()).await {
        Ok(client) => {
            let mut checks = vec![
                check("reachable", Verdict::Ok, url),
                check("server", Verdict::Ok, "new enough: Redis 7.0 or Valkey 7.2 at least"),
                check("policy", Verdict::Ok, "no keys are evicted, as far as the server lets us see"),
                check("layout", Verdict::Ok, format!("{SCHEMA}, the one that this build reads")),
            ];
            if args.repair {
                checks.push(repair(&client).await?);
            }
            checks.extend(ask(&client, context.config.submit.waiting_max).await?);
            checks
        }
        Err(Error::Store(store::Error::Unsuitable(text))) => {
            let advice =
                "Tidemill needs Redis 7.0 or Valkey 7.2, maxmemory-policy noeviction, and data of its own layout";
            vec![check("reachable", Verdict::Ok, url), check("server", Verdict::Bad, text).advise(advice)]
        }
        Err(error) => return Err(error.into()),
    };
    let ok = checks.iter().all(|check| check.verdict != Verdict::Bad);
    if context.out.is_table() {
        for Check { name, verdict, text, advice } in &checks {
            let (paint, word) = match verdict {
                Verdict::Ok => (Paint::Good, "ok  "),
                Verdict::Warn => (Paint::Care, "warn"),
                Verdict::Bad => (Paint::Bad, "bad "),
            };
            context.out.line(&format!("{}  {name:<11} {text}", context.out.paint(paint, word)))?;
            if let Some(advice) = advice {
                context.out.line(&format!("{:18}{}", "", context.out.paint(Paint::Faint, advice)))?;
            }
        }
    } else {
        context.out.json(&View { ok, checks })?;
    }
    Ok(if ok { Exit::Ok } else { Exit::Failure })
}

/// Repairs, and says what was wrong.
async fn repair(client: &Client) -> Result<Check, Error> {
    let Repaired { streams, counts } = client.repair().await?;
    let streams = format!("{streams} streams were not looked at, and all lines are looked at anew");
    Ok(match counts {
        Some(0) => check("repair", Verdict::Ok, format!("the counts are right; {streams}")),
        Some(n) => check("repair", Verdict::Ok, format!("{n} counts were wrong, and are right now; {streams}")),
        None => check(
            "repair",
            Verdict::Warn,
            format!("the counts were not looked at, since tasks moved meanwhile; {streams}"),
        )
        .advise("say it again when less is going on: pause the producers for a moment"),
    })
}

async fn ask(client: &Client, waiting_max: u64) -> Result<Vec<Check>, Error> {
    // The first call may have to send the script's text.
    client.counts().await?;
    let began = Instant::now();
    let counts = client.counts().await?;
    let took = began.elapsed();
    let quick = if took < ROUND_TRIP_SLOW { Verdict::Ok } else { Verdict::Warn };
    let trip = check("round trip", quick, format!("{:.1} ms", took.as_secs_f64() * 1e3));
    let trip = if quick == Verdict::Ok {
        trip
    } else {
        trip.advise("every claim and settle waits for it: see the network and `redis-cli --latency`")
    };
    let (facts, pauses) = tokio::try_join!(client.server_facts(), client.pauses())?;
    let mut checks = doctor_server::checks(&facts, &pause::in_force(pauses, counts.now_ms), counts.now_ms);
    checks.extend([trip, clocks(&counts), workers(&counts), room(&counts, waiting_max)]);
    let waiting: u64 = counts.waiting.values().sum();
    checks.push(check(
        "tasks",
        Verdict::Ok,
        format!(
            "{waiting} waiting (of which {} scheduled, {} parked), {} running",
            counts.scheduled, counts.parked, counts.running
        ),
    ));
    let dead = if counts.dead == 0 { Verdict::Ok } else { Verdict::Warn };
    let dead = check("dead", dead, format!("{} kept for replay", counts.dead));
    let advice = "`producer dead groups` shows what they died of";
    checks.push(if counts.dead == 0 { dead } else { dead.advise(advice) });
    if let Some(unread) = counts.ended.get("quarantined").filter(|n| **n > 0) {
        let text = format!("{unread} tasks could not be read and were put aside, since the beginning");
        let advice =
            "`producer dead list --reason invalid` shows those that are kept; `producer dead purge` forgets them";
        checks.push(check("quarantine", Verdict::Warn, text).advise(advice));
    }
    checks.extend(doctor_tasks::checks(client, &counts).await?);
    Ok(checks)
}

fn clocks(counts: &Counts) -> Check {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let here_ms = u64::try_from(here.as_millis()).unwrap_or(u64::MAX);
    let apart = here_ms.abs_diff(counts.now_ms);
    if apart < CLOCKS_APART_MS {
        check("clocks", Verdict::Ok, format!("this machine's and the server's agree ({apart} ms apart)"))
    } else {
        let text = format!("this machine's and the server's are {} apart; decisions use the server's", span(apart));
        check("clocks", Verdict::Warn, text).advise("run NTP on both, or logs and states tell different times")
    }
}

/// Queues that are nearly as full as this configuration lets them be.
fn room(counts: &Counts, waiting_max: u64) -> Check {
    // A fifth of the room is not for low tasks.
    let near = |n: &u64| waiting_max > 0 && *n >= waiting_max.saturating_mul(4) / 5;
    let full = counts.waiting.iter().find(|(_, n)| near(n));
    match full {
        None => check("room", Verdict::Ok, "no queue is near its bound (submit.waiting_max)"),
        Some(((queue, priority), n)) => {
            let priority = Priority::from_value(*priority).map_or("unknown", Priority::as_str);
            let text = format!(
                "queue {queue} has {n} waiting tasks of priority {priority}, of {waiting_max} that it may have"
            );
            check("room", Verdict::Warn, text).advise("run more workers, or raise submit.waiting_max")
        }
    }
}

fn workers(counts: &Counts) -> Check {
    let waiting: u64 = counts.waiting.values().sum();
    match counts.workers {
        0 if waiting > 0 => check("workers", Verdict::Bad, format!("none is alive, and {waiting} tasks wait"))
            .advise("start one with `worker run`"),
        0 => check("workers", Verdict::Warn, "none is alive")
            .advise("start one with `worker run`, or `worker dev` on this machine"),
        n => check("workers", Verdict::Ok, format!("{n} alive, {} idle", counts.idle)),
    }
}
