//! States and gates in words: what holds a task back, and what that means.

use std::time::Duration;

use tidemill_common::book::needs::{Allows, Need};
use tidemill_common::book::{Budget, Unit};
use tidemill_common::config::duration;
use tidemill_common::history::{DeadReason, PastError};
use tidemill_common::store::{GateSeen, Pausable, Pause, WindowSeen};
use tidemill_common::task::Task;
use tidemill_producer::{State, Status, TaskId};

use super::output::{Paint, printable};
use super::{pause, view};

/// The colour of a state.
pub(crate) fn paint(state: Option<State>) -> Paint {
    match state {
        Some(State::Succeeded | State::Running) => Paint::Good,
        Some(State::Dead | State::Expired) => Paint::Bad,
        Some(State::Parked | State::Cancelled) => Paint::Care,
        Some(State::Queued | State::Scheduled) | None => Paint::Faint,
    }
}

/// A task's state in a few words: `parked at want:echo`, `running on w1.ab12 (attempt 2)`.
pub(crate) fn brief(status: &Status) -> String {
    let name = view::state_name(status.state);
    match status.state {
        Some(State::Parked) => format!("{name} at {}", printable(status.gate.as_deref().unwrap_or("a gate"))),
        Some(State::Running) => format!("{name} on {} (attempt {})", printable(&status.worker), status.attempt),
        Some(State::Scheduled) if !status.error().is_empty() => {
            format!("{name} for another try: {}", printable(status.error()))
        }
        _ => name.to_owned(),
    }
}

/// What an explanation says beside the task's own status.
#[derive(Debug, Default)]
pub(crate) struct Around {
    /// The server's time.
    pub(crate) now_ms: u64,
    /// Workers that are alive.
    pub(crate) workers: u64,
    /// The dead head of its order key, behind which it waits.
    pub(crate) held_by: Option<TaskId>,
    /// The pauses that hold it back.
    pub(crate) pauses: Vec<Pause>,
    /// The gate in whose line it stands.
    pub(crate) gate: Option<GateSeen>,
    /// What that gate allows, as the book says.
    pub(crate) need: Option<Need>,
}

/// A whole explanation, a sentence a line.
pub(crate) fn explain(id: &TaskId, status: &Status, around: &Around) -> Vec<String> {
    let now_ms = around.now_ms;
    let task = view::head(id, status);
    let agent = task.as_ref().map_or_else(|| status.agent.clone(), |t| t.agent.to_string());
    let agent = if agent.is_empty() { "its agent".to_owned() } else { format!("agent {agent}") };
    let mut lines = match status.state {
        None => vec![
            "Nothing is known of this task: it was never accepted here, or it ended and its outcome has been forgotten.".to_owned(),
        ],
        Some(State::Queued) if !around.pauses.is_empty() => vec!["It is ready, and held back.".to_owned()],
        Some(State::Queued) => vec![format!("It is ready: the next worker with room that runs {agent} takes it.")],
        Some(State::Scheduled) => scheduled(status, now_ms),
        Some(State::Parked) => vec![gate(status.gate.as_deref().unwrap_or_default(), &agent)],
        Some(State::Running) => running(status, now_ms),
        Some(State::Succeeded) => vec![format!("It succeeded{}.", ago(now_ms, status.ended_ms))],
        Some(State::Dead) => vec![
            format!("It failed for good{}, after {} that counted.", ago(now_ms, status.ended_ms), runs(status.attempt)),
            died_of(status.reason).to_owned(),
        ],
        Some(State::Cancelled) => vec![format!("It was called off{}.", ago(now_ms, status.ended_ms))],
        Some(State::Expired) => vec![format!("It had not started before its deadline and expired{}.", ago(now_ms, status.ended_ms))],
    };
    lines.extend(around.gate.iter().flat_map(|seen| in_line(id, seen, around)));
    lines.extend(around.pauses.iter().map(|held| pause::sentence(held, now_ms)));
    if let Some(head) = &around.held_by {
        lines.push(format!(
            "That one is dead, and holds its order key: {head}. `producer dead replay {head}` lets it run again, `producer dead \
             skip {head}` lets the next go."
        ));
    }
    if matches!(status.state, Some(State::Queued | State::Parked)) && around.workers == 0 {
        lines.push("No worker is alive: start one with `worker run`, or `worker dev` on this machine.".to_owned());
    }
    if status.losses > 0 {
        lines.push(format!("It was lost with its worker {}.", times(status.losses)));
    }
    if status.replays > 0 {
        lines.push(format!("It was replayed {}.", times(status.replays)));
    }
    lines.extend(errors(id, status, now_ms));
    if status.state == Some(State::Dead) {
        lines.extend(what_now(id, status.reason, task.as_ref()));
    }
    lines
}

fn runs(n: u64) -> String {
    if n == 1 { "1 run".to_owned() } else { format!("{n} runs") }
}

fn times(n: u64) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

/// Its last errors, the newest first.
fn errors(id: &TaskId, status: &Status, now_ms: u64) -> Vec<String> {
    let last = tidemill_producer::Ended::of(id, status).map_or_else(|| status.error().to_owned(), |end| end.error);
    match status.errors.as_slice() {
        [] if last.is_empty() => Vec::new(),
        [] => vec![format!("Its last error: {}", printable(&last))],
        [one] => {
            vec![format!("Its last error (attempt {}{}): {}", one.attempt, ago_in(now_ms, one), printable(&one.text))]
        }
        all => {
            let one = |e: &PastError| format!("  attempt {}{}: {}", e.attempt, ago_in(now_ms, e), printable(&e.text));
            std::iter::once("Its last errors:".to_owned()).chain(all.iter().map(one)).collect()
        }
    }
}

fn ago_in(now_ms: u64, error: &PastError) -> String {
    format!(",{}", ago(now_ms, error.at_ms))
}

/// Why it is dead.
fn died_of(reason: Option<DeadReason>) -> &'static str {
    match reason {
        Some(DeadReason::Attempts) => "Reason `attempts`: the last of its attempts failed.",
        Some(DeadReason::Rejected) => "Reason `rejected`: its handler said that it will never succeed.",
        Some(DeadReason::Poison) => {
            "Reason `poison`: it was lost with its worker too often, at last alone in a process of its own."
        }
        Some(DeadReason::Invalid) => "Reason `invalid`: it cannot be read, and was put aside.",
        Some(DeadReason::NeverFits) => "Reason `never_fits`: it takes more of a rate than the rule ever allows.",
        Some(DeadReason::UnknownAgent) => "Reason `unknown_agent`: no worker knew its agent for too long.",
        None => "Why is not known any more.",
    }
}

/// What can be done about a dead task.
fn what_now(id: &TaskId, reason: Option<DeadReason>, task: Option<&Task>) -> Vec<String> {
    let before = match reason {
        Some(DeadReason::NeverFits) => "Raise the limit of its rule (`producer book apply`), then: ",
        Some(DeadReason::UnknownAgent) => "Start a worker that runs its agent, then: ",
        Some(DeadReason::Rejected) => "See to what it was given (`producer dead show`), then: ",
        _ => "",
    };
    let mut lines = Vec::new();
    if reason == Some(DeadReason::Invalid) {
        lines.push(format!("It cannot run again. To forget it: `producer dead purge {id}`."));
    } else {
        lines.push(format!(
            "{before}`producer dead replay {id}` lets it run again, with --set FIELD=VALUE for another payload; `producer dead \
             purge {id}` forgets it."
        ));
    }
    if let Some(key) = task.filter(|task| task.hold_on_dead).and_then(|task| task.order_key.as_ref()) {
        lines.push(format!(
            "It holds the order key {key:?}: those behind it wait. `producer dead skip {id}` lets the next go and leaves it dead."
        ));
    }
    lines
}

fn scheduled(status: &Status, now_ms: u64) -> Vec<String> {
    let due = span(status.due_ms.saturating_sub(now_ms));
    if status.attempt > 0 || !status.error().is_empty() {
        vec![format!("It failed ({} counted) and is tried again in {due}.", runs(status.attempt))]
    } else {
        vec![format!("It is due in {due}.")]
    }
}

fn running(status: &Status, now_ms: u64) -> Vec<String> {
    let since = span(now_ms.saturating_sub(status.started_ms));
    let mut lines =
        vec![format!("Worker {} has run it for {since} (attempt {}).", printable(&status.worker), status.attempt)];
    if !status.progress.is_empty() {
        lines.push(format!("Its progress: {}", printable(&status.progress)));
    }
    lines
}

/// A gate's name in a few words, for lists.
pub(crate) fn gate_name(name: &str) -> String {
    match (name.get(..2), name.strip_prefix("want:")) {
        (_, Some("*")) => "lost before, to run alone".into(),
        (_, Some(agent)) => format!("a worker for {}", printable(agent)),
        (Some("s/"), _) => format!("slots of {}", rule(&name[2..])),
        (Some("r/"), _) => format!("rate of {}", rule(&name[2..])),
        (Some("t/"), _) => format!("tokens of {}", rule(&name[2..])),
        (Some("c/"), _) => format!("money of {}", rule(&name[2..])),
        (Some("p/"), _) => "paused".into(),
        _ => String::new(),
    }
}

/// Its place in the line of its gate, who holds that, and when it may be its turn.
fn in_line(id: &TaskId, seen: &GateSeen, around: &Around) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(need) = &around.need {
        lines.push(format!("The rule allows {}.", tidemill_producer::book::allows(need)));
    }
    if seen.place == 1 {
        lines.push(format!("It is the first of {} in line.", seen.waiting));
    } else if seen.place > 1 {
        let first = seen.first.as_ref().map_or_else(String::new, |first| format!("; the first is {first}"));
        lines.push(format!("It is number {} of {} in line{first}.", seen.place, seen.waiting));
    }
    if let Some(Allows::Budget(unit, budget)) = around.need.as_ref().map(|need| &need.allows) {
        lines.extend(charged(*unit, budget, seen, around.now_ms));
    }
    if !seen.holders.is_empty() {
        let held =
            seen.holders.iter().map(|(holder, n)| if *n == 1 { holder.to_string() } else { format!("{holder} ({n})") });
        let more = if seen.whole && seen.holders.len() < 8 { "" } else { ", and maybe others" };
        let held = held.collect::<Vec<_>>().join(", ");
        lines.push(match around.need.as_ref().map(|need| &need.allows) {
            Some(Allows::Budget(..)) => format!("Charged for what runs: {held}{more}."),
            _ => format!("{} in use, by {held}{more}.", seen.used),
        });
    }
    if let Some(other) = seen.reserved.as_ref().filter(|other| *other != id) {
        lines.push(format!("What is given back is kept for {other}, which was moved between gates too often."));
    }
    if let Some(at) = expected_ms(seen, around) {
        lines.push(format!("It may start in about {}.", span(at.saturating_sub(around.now_ms).max(1))));
    }
    lines
}

/// What is charged to each window of a budget.
fn charged(unit: Unit, budget: &Budget, seen: &GateSeen, now_ms: u64) -> Vec<String> {
    let said = |(window, says): (&WindowSeen, String)| {
        let debt = match window.debt {
            0 => String::new(),
            debt => format!(", and {} of debt is paid first", unit.said(debt)),
        };
        let ends = match window.ends_ms {
            0 => String::new(),
            ends => format!("; the next begins in {}", span(ends.saturating_sub(now_ms))),
        };
        format!("{} of {says} are charged{debt}{ends}.", unit.said(window.charged))
    };
    seen.windows.iter().zip(budget.said(unit)).map(said).collect()
}

/// When a rate may let it through, if nothing goes wrong: those before it take their turns at the pace of the slowest window.
fn expected_ms(seen: &GateSeen, around: &Around) -> Option<u64> {
    let Allows::Rate(windows, _) = &around.need.as_ref()?.allows else { return None };
    let each = windows.iter().map(|(limit, ms)| ms.div_ceil((*limit).max(1))).max()?;
    (seen.due_ms > 0 && seen.place > 0).then(|| seen.due_ms.saturating_add((seen.place - 1).saturating_mul(each)))
}

/// What a gate's name means.
pub(crate) fn gate(name: &str, agent: &str) -> String {
    let shown = printable(name);
    if name == "want:*" {
        return "It was lost with its workers before, so it waits for one that runs it alone; a worker starts such a child by itself.".into();
    }
    if let Some(version) = name.strip_prefix("want:@") {
        return format!(
            "Gate {shown}: it was handed in by a later build, and no worker that asked for work reads version {version}. It goes on when one that does has room."
        );
    }
    if name.starts_with("want:") {
        return format!(
            "Gate {shown}: no worker that asked for work runs {agent}, or all that do are full of it. It goes on when one that runs it has room."
        );
    }
    if let Some(key) = name.strip_prefix("order:") {
        return format!(
            "An earlier task with the order key {:?} has not ended; this one goes on when that one has.",
            key
        );
    }
    if let Some(what) = name.strip_prefix("p/").and_then(Pausable::from_field) {
        let what = printable(&what.to_string());
        return format!(
            "Gate {shown}: {what} is paused. It goes on when that is resumed, or the pause's time is over."
        );
    }
    let rule = name.get(2..).map_or_else(|| shown.clone(), rule);
    match name.get(..2) {
        Some("s/") => {
            format!(
                "Gate {shown}: all slots of the rule for {rule} are in use, or promised to tasks before it. It goes on when one is given back."
            )
        }
        Some("r/") => format!(
            "Gate {shown}: the rate of the rule for {rule} is used up. It goes on when the window has room again."
        ),
        Some("t/" | "c/") => format!(
            "Gate {shown}: the budget of the rule for {rule} has not enough left for what the task is expected to use. It goes on when the window has room again, or others have used less than was expected."
        ),
        _ => format!("Gate {shown} holds it back."),
    }
}

/// What a gate's name says of its rule: `a+t/gpt4/acme` is `agent gpt4, tenant acme`, as the rule counts each by itself.
fn rule(name: &str) -> String {
    let (parts, values) = name.split_once('/').unwrap_or((name, ""));
    let is_in = |letter: char| parts.contains(letter);
    // In the order of the values; the tier has none where the tenant has one.
    let named = [("queue", 'q'), ("agent", 'a'), ("tier", 'r'), ("tenant", 't')];
    let named: Vec<_> = named.into_iter().filter(|(_, l)| is_in(*l) && !(*l == 'r' && is_in('t'))).collect();
    let mut values = values.splitn(named.len().max(1), '/');
    let words: Vec<String> =
        named.iter().map(|(word, _)| format!("{word} {}", printable(values.next().unwrap_or_default()))).collect();
    if words.is_empty() { "all tasks".to_owned() } else { words.join(", ") }
}

fn ago(now_ms: u64, then_ms: u64) -> String {
    if then_ms == 0 { String::new() } else { format!(" {} ago", span(now_ms.saturating_sub(then_ms))) }
}

/// A span as people say it: to the ms below a second, to the second above.
pub(crate) fn span(ms: u64) -> String {
    let rounded = if ms < 1000 { ms } else { ms / 1000 * 1000 };
    if rounded == 0 { "no time".to_owned() } else { duration::text(Duration::from_millis(rounded)) }
}

/// An age for a table: its largest unit and the next.
pub(crate) fn age(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms}ms"),
        s @ 1..60 => format!("{s}s"),
        s @ 60..3_600 => format!("{}m {}s", s / 60, s % 60),
        s @ 3_600..86_400 => format!("{}h {}m", s / 3_600, s % 3_600 / 60),
        s => format!("{}d {}h", s / 86_400, s % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_put_in_words() {
        for (name, words) in [
            ("want:echo", "runs agent echo"),
            ("want:*", "alone"),
            ("want:@2", "reads version 2"),
            ("order:{x}", "\"{x}\""),
            ("s/*/", "all tasks"),
            ("p/*", "everything is paused"),
            ("p/q/slow", "queue slow is paused"),
            ("p/x", "holds it back"),
            ("s/at/gpt4/a/b", "agent gpt4, tenant a/b"),
            ("r/qa/default/gpt4", "queue default, agent gpt4"),
            ("t/a+t/gpt4/acme", "budget of the rule for agent gpt4, tenant acme"),
            ("lock:x\u{1b}", "lock:x\\u{1b}"),
            ("", "holds it back"),
        ] {
            let text = gate(name, "agent echo");
            assert!(text.contains(words), "{name}: {text}");
        }
    }

    #[test]
    fn spans_are_short() {
        assert_eq!((age(999), age(61_000), age(90_000_000)), ("999ms".into(), "1m 1s".into(), "1d 1h".into()));
        assert_eq!((span(0).as_str(), span(250).as_str(), span(61_500).as_str()), ("no time", "250ms", "1m 1s"));
    }
}
