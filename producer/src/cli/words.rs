//! States and gates in words: what holds a task back, and what that means.

use std::time::Duration;

use tidemill_common::config::duration;
use tidemill_producer::{State, Status, TaskId};

use super::output::{Paint, printable};
use super::view;

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

/// A whole explanation, a sentence a line.
pub(crate) fn explain(id: &TaskId, status: &Status, now_ms: u64, workers: u64) -> Vec<String> {
    let task = view::head(id, status);
    let agent = task.as_ref().map_or_else(|| status.agent.clone(), |t| t.agent.to_string());
    let agent = if agent.is_empty() { "its agent".to_owned() } else { format!("agent {agent}") };
    let mut lines = match status.state {
        None => vec![
            "Nothing is known of this task: it was never accepted here, or it ended and its outcome has been forgotten.".to_owned(),
        ],
        Some(State::Queued) => vec![format!("It is ready: the next worker with room that runs {agent} takes it.")],
        Some(State::Scheduled) => scheduled(status, now_ms),
        Some(State::Parked) => vec![gate(status.gate.as_deref().unwrap_or_default(), &agent)],
        Some(State::Running) => running(status, now_ms),
        Some(State::Succeeded) => vec![format!("It succeeded{}.", ago(now_ms, status.ended_ms))],
        Some(State::Dead) => vec![
            format!("It failed for good{}, after {} runs that counted.", ago(now_ms, status.ended_ms), status.attempt),
            "It is kept for replay.".to_owned(),
        ],
        Some(State::Cancelled) => vec![format!("It was called off{}.", ago(now_ms, status.ended_ms))],
        Some(State::Expired) => vec![format!("It had not started before its deadline and expired{}.", ago(now_ms, status.ended_ms))],
    };
    if matches!(status.state, Some(State::Queued | State::Parked)) && workers == 0 {
        lines.push("No worker is alive: start one with `worker run`, or `worker dev` on this machine.".to_owned());
    }
    let error = tidemill_producer::Ended::of(id, status).map_or_else(|| status.error().to_owned(), |end| end.error);
    if !error.is_empty() {
        lines.push(format!("Its last error: {}", printable(&error)));
    }
    if status.losses > 0 {
        lines.push(format!("It was lost with its worker {} times.", status.losses));
    }
    lines
}

fn scheduled(status: &Status, now_ms: u64) -> Vec<String> {
    let due = span(status.due_ms.saturating_sub(now_ms));
    if status.attempt > 0 || !status.error().is_empty() {
        vec![format!("It failed ({} runs counted) and is tried again in {due}.", status.attempt)]
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

/// What a gate's name means.
pub(crate) fn gate(name: &str, agent: &str) -> String {
    let shown = printable(name);
    if name == "want:*" {
        return "It was lost with its workers before, so it waits for one that runs it alone; a worker starts such a child by itself.".into();
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
        _ => format!("Gate {shown} holds it back."),
    }
}

/// The match of a rule, `at/gpt4/acme`, in words: `agent gpt4, tenant acme`.
fn rule(field: &str) -> String {
    let (mask, values) = field.split_once('/').unwrap_or((field, ""));
    let mut values = values.splitn(mask.len(), '/');
    let parts: Vec<String> = mask
        .chars()
        .filter_map(|kind| match kind {
            'q' => Some("queue"),
            'a' => Some("agent"),
            't' => Some("tenant"),
            _ => None,
        })
        .map(|kind| format!("{kind} {}", printable(values.next().unwrap_or_default())))
        .collect();
    if parts.is_empty() { "all tasks".to_owned() } else { parts.join(", ") }
}

fn ago(now_ms: u64, then_ms: u64) -> String {
    if then_ms == 0 { String::new() } else { format!(" {} ago", span(now_ms.saturating_sub(then_ms))) }
}

/// A span as people say it: to the ms below a second, to the second above.
pub(crate) fn span(ms: u64) -> String {
    let rounded = if ms < 1000 { ms } else { ms / 1000 * 1000 };
    if rounded == 0 { "no time".to_owned() } else { duration::text(Duration::from_millis(rounded)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_put_in_words() {
        for (name, words) in [
            ("want:echo", "runs agent echo"),
            ("want:*", "alone"),
            ("order:{x}", "\"{x}\""),
            ("s/*/", "all tasks"),
            ("s/at/gpt4/a/b", "agent gpt4, tenant a/b"),
            ("r/qa/default/gpt4", "queue default, agent gpt4"),
            ("lock:x\u{1b}", "lock:x\\u{1b}"),
            ("", "holds it back"),
        ] {
            let text = gate(name, "agent echo");
            assert!(text.contains(words), "{name}: {text}");
        }
    }

    #[test]
    fn spans_are_short() {
        assert_eq!((span(0).as_str(), span(250).as_str(), span(61_500).as_str()), ("no time", "250ms", "1m 1s"));
    }
}
