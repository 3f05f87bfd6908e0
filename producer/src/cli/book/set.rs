//! `producer book set` and `tier`: one knob turned, without a file.
//!
//! The book in force is read, changed and applied as the next revision, only if no other came in between. Its comments are not
//! kept: who has the book in a repository edits it there.

use std::collections::BTreeMap;

use tidemill_common::spend::parse_usd;
use tidemill_producer::book::{BookEdit, Budget, Limit, Match, OnLost, Part, Rate, Slots, Unit};
use tidemill_producer::{AgentName, Book, QueueName};

use super::{BOOK, EXAMPLES, apply, rules};
use crate::cli::Context;
use crate::cli::codes::Code;
use crate::cli::exit::{Failure, Outcome};

/// Change one rule of the book in force, as its next revision
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES, after_long_help = BOOK)]
pub(crate) struct Args {
    /// The rule of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
    /// The rule of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<AgentName>,
    /// The rule of this tier
    #[arg(long, value_name = "TIER")]
    tier: Option<String>,
    /// The rule of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// What it counts apart: queue, agent, tier or tenant
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    per: Vec<String>,
    /// `slots=5`, `rate.minute=60`, `rate.burst=10`, `tokens.day=2000000`, `cost_usd.month=100.00`, `on_lost=refund`; `none` takes it out
    #[arg(value_name = "NAME=VALUE", required = true)]
    values: Vec<String>,
    /// Why, for whoever looks at the history
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

/// Give a tenant a tier, as the book's next revision
#[derive(Debug, clap::Args)]
#[command(before_long_help = EXAMPLES)]
pub(crate) struct Tier {
    /// On whose behalf tasks run
    #[arg(value_name = "TENANT")]
    tenant: String,
    /// One of the book's tiers; `none`: the lowest
    #[arg(value_name = "TIER")]
    tier: String,
    /// Why, for whoever looks at the history
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

fn wrong(text: impl Into<String>) -> Failure {
    Failure::usage(Code::Arguments, text.into())
}

pub(crate) async fn run(args: &Args, context: &Context) -> Outcome {
    edit(context, &args.note, |book| {
        let matches = Match {
            queue: args.queue.clone(),
            agent: args.agent.clone(),
            tier: args.tier.as_ref().map(|t| t.parse()).transpose().map_err(|e| wrong(format!("{e}")))?,
            tenant: args.tenant.clone(),
        };
        let at = book.limits.iter().position(|limit| limit.matches == matches).unwrap_or(book.limits.len());
        if at == book.limits.len() {
            book.limits.push(Limit { matches, ..Limit::default() });
        }
        let limit = &mut book.limits[at];
        if !args.per.is_empty() {
            limit.per = args.per.iter().map(|part| part_of(part)).collect::<Result<_, _>>()?;
        }
        args.values.iter().try_for_each(|value| set(limit, value))?;
        if limit.is_empty() {
            book.limits.remove(at);
        }
        Ok(())
    })
    .await
}

pub(crate) async fn tier(args: &Tier, context: &Context) -> Outcome {
    edit(context, &args.note, |book| {
        if args.tier == "none" {
            book.tenants.remove(&args.tenant);
        } else {
            let tier = args.tier.parse().map_err(|e| wrong(format!("{e}")))?;
            book.tenants.insert(args.tenant.clone(), tier);
        }
        Ok(())
    })
    .await
}

/// The book in force, changed, as the next revision.
async fn edit(context: &Context, note: &str, change: impl FnOnce(&mut Book) -> Result<(), Failure>) -> Outcome {
    let client = context.connect().await?;
    let kept = client.book().await?;
    let mut book = rules(kept.as_ref())?;
    let follows = kept.map_or(0, |kept| kept.revision);
    change(&mut book)?;
    book.revision = follows + 1;
    let text = book.to_text();
    let applied = client.apply_book_as(&book, text, BookEdit { follows: Some(follows), note }).await?;
    apply::said(applied, book.revision, &context.out)
}

fn part_of(text: &str) -> Result<Part, Failure> {
    let named = Part::ALL.into_iter().find(|part| format!("{part:?}").eq_ignore_ascii_case(text));
    named.ok_or_else(|| wrong(format!("{text:?} cannot be counted apart; it is queue, agent, tier or tenant")))
}

/// `slots=5`, `slots.pro=5`, `rate.minute=60`, `rate=none`.
fn set(limit: &mut Limit, text: &str) -> Result<(), Failure> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(wrong(format!("{text:?} is to be NAME=VALUE, as in slots=5 or rate.minute=60")));
    };
    let (name, part) = name.split_once('.').unwrap_or((name, ""));
    match name {
        "tokens" => set_budget(&mut limit.tokens, Unit::Tokens, part, value, text),
        "cost_usd" => set_budget(&mut limit.cost_usd, Unit::MicroUsd, part, value, text),
        "on_lost" if part.is_empty() => {
            let all = [OnLost::Charge, OnLost::Reported, OnLost::Refund];
            let named = all.into_iter().find(|one| format!("{one:?}").eq_ignore_ascii_case(value));
            limit.on_lost = named.ok_or_else(|| wrong(format!("{text:?}: it is charge, reported or refund")))?;
            Ok(())
        }
        _ => set_count(limit, (name, part), whole(value, text)?),
    }
}

fn whole(value: &str, text: &str) -> Result<Option<u64>, Failure> {
    let number =
        || value.parse::<u64>().map_err(|_| wrong(format!("{text:?}: {value:?} is no whole number, nor none")));
    if value == "none" { Ok(None) } else { number().map(Some) }
}

fn window(name: &str, text: &str) -> Result<u64, Failure> {
    Rate::window_ms(name).ok_or_else(|| wrong(format!("{text:?}: {name:?} is no window")))
}

/// `tokens.day=2000000`, `cost_usd.month=100.00`, `cost_usd.zone=Europe/Berlin`, `tokens=none`.
fn set_budget(of: &mut Option<Budget>, unit: Unit, part: &str, value: &str, text: &str) -> Result<(), Failure> {
    match part {
        "" if value == "none" => *of = None,
        "" => {
            return Err(wrong(format!("{text:?} is to name a window, as in tokens.day=2000000 or cost_usd.month=100")));
        }
        "zone" => of.get_or_insert_default().zone = Some(value.to_owned()).filter(|zone| zone != "none"),
        name => {
            let limit = match (value, unit) {
                ("none", _) => None,
                (value, Unit::Tokens) => whole(value, text)?,
                (value, Unit::MicroUsd) => Some(parse_usd(value).map_err(|e| wrong(format!("{text:?}: {e}")))?),
            };
            let budget = of.get_or_insert_default();
            budget.set(window(name, text)?, limit);
            if budget.windows.is_empty() {
                *of = None;
            }
        }
    }
    Ok(())
}

fn set_count(limit: &mut Limit, name: (&str, &str), number: Option<u64>) -> Result<(), Failure> {
    match (name, number) {
        (("slots", ""), number) => limit.slots = number.map(Slots::Count),
        (("slots", tier), number) => {
            let tier = tier.parse().map_err(|e| wrong(format!("{tier:?}: {e}")))?;
            let mut by_tier = match limit.slots.take() {
                Some(Slots::ByTier(by_tier)) => by_tier,
                _ => BTreeMap::new(),
            };
            match number {
                Some(n) => drop(by_tier.insert(tier, n)),
                None => drop(by_tier.remove(&tier)),
            }
            limit.slots = (!by_tier.is_empty()).then_some(Slots::ByTier(by_tier));
        }
        (("rate", ""), None) => limit.rate = None,
        (("rate", "burst"), number) => limit.rate.get_or_insert_default().burst = number,
        (("rate", name), number) if !name.is_empty() => {
            let rate = limit.rate.get_or_insert_default();
            rate.set(window(name, name)?, number);
            if rate.windows.is_empty() {
                limit.rate = None;
            }
        }
        ((name, _), _) => {
            return Err(wrong(format!(
                "{name:?} is nothing to set; it is slots, slots.TIER, rate, rate.WINDOW, rate.burst, tokens.WINDOW, cost_usd.WINDOW, \
                 cost_usd.zone or on_lost"
            )));
        }
    }
    Ok(())
}
