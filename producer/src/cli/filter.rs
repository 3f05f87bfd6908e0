//! Which tasks: the same flags for every verb that lists tasks, or does something to many.

use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use tidemill_common::config::duration;
use tidemill_common::history::DeadReason;
use tidemill_common::store::{Filter, Found};
use tidemill_producer::{AgentName, Priority, QueueName, Select, State};

use super::codes::Code;
use super::exit::Failure;
use super::facts::Span;
use super::group::{Fingerprint, fingerprint};

/// The heading of these flags in the help.
const HEADING: &str = "Filters (all that are given must fit)";

/// Flags that say which tasks; none of them: any.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// In these states: queued, scheduled, parked, running, succeeded, dead, cancelled, expired
    #[arg(long, short, value_name = "STATE", value_delimiter = ',', value_parser = state_parser(), hide_possible_values = true, help_heading = HEADING)]
    state: Vec<State>,
    /// Of this queue
    #[arg(long, short = 'Q', value_name = "QUEUE", help_heading = HEADING)]
    queue: Option<QueueName>,
    /// Of this agent
    #[arg(long, short, value_name = "AGENT", help_heading = HEADING)]
    agent: Option<AgentName>,
    /// On behalf of this tenant
    #[arg(long, value_name = "TENANT", value_parser = NonEmptyStringValueParser::new(), help_heading = HEADING)]
    tenant: Option<String>,
    /// Of this priority: urgent, high, normal or low; or 20, 10, 5, 1
    #[arg(long, short, value_name = "PRIORITY", value_parser = priority_parser(), hide_possible_values = true, help_heading = HEADING)]
    priority: Option<Priority>,
    /// Dead for this reason: attempts, rejected, poison, invalid, never_fits, unknown_agent
    #[arg(long, value_name = "REASON", value_parser = reason_parser(), hide_possible_values = true, help_heading = HEADING)]
    reason: Option<DeadReason>,
    /// Whose last error has this text in it
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new(), help_heading = HEADING)]
    error: Option<String>,
    /// Accepted, or replayed, at least so long ago: 5m, 2h
    #[arg(long, value_name = "DURATION", help_heading = HEADING)]
    older_than: Option<Span>,
    /// Dead ones of this group: see `producer dead groups`
    #[arg(long, value_name = "FINGERPRINT", help_heading = HEADING)]
    group: Option<Fingerprint>,
}

/// A state by its name, with suggestions.
fn state_parser() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(State::ALL.map(State::as_str)).try_map(|name| name.parse::<State>().map_err(|_| name))
}

/// A reason by its name, with suggestions.
fn reason_parser() -> impl TypedValueParser<Value = DeadReason> {
    PossibleValuesParser::new(DeadReason::ALL.map(DeadReason::as_str)).try_map(|name| name.parse::<DeadReason>())
}

/// A priority by its name or number, with suggestions.
pub(crate) fn priority_parser() -> impl TypedValueParser<Value = Priority> {
    let values = [("urgent", "20"), ("high", "10"), ("normal", "5"), ("low", "1")];
    let values = values.map(|(name, number)| PossibleValue::new(name).alias(number));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Priority>())
}

/// What is looked for: what the library matches, and what only the program does.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) select: Select,
    group: Option<Fingerprint>,
}

impl Wanted {
    /// Whether a task that the library met is one of them.
    pub(crate) fn matches(&self, found: &Found) -> bool {
        self.group.is_none_or(|group| fingerprint(found) == group)
    }
}

impl FilterArgs {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.is_empty() && self.flags().is_empty()
    }

    /// What is looked for: in the states that are named, or else in the `usual` ones (none: in any). `most` are those that make
    /// sense for the verb.
    ///
    /// # Errors
    /// A state that makes no sense, or a reason where none is dead.
    pub(crate) fn wanted(&self, usual: &[State], most: &[State]) -> Result<Wanted, Failure> {
        if let Some(state) = self.state.iter().find(|state| !most.contains(state)) {
            let most: Vec<&str> = most.iter().map(|state| state.as_str()).collect();
            let text = format!("this cannot be done to a task that is {state}; it may be {}", most.join(", "));
            return Err(Failure::usage(Code::Arguments, text));
        }
        let of_dead = self.reason.is_some() || self.group.is_some();
        let states = match (self.state.is_empty(), of_dead) {
            (false, _) => self.state.clone(),
            (true, true) if most.contains(&State::Dead) => vec![State::Dead],
            (true, _) => usual.to_vec(),
        };
        if of_dead && !states.contains(&State::Dead) {
            return Err(Failure::usage(Code::Arguments, "only the dead have a reason and are of a group"));
        }
        let filter = Filter {
            queue: self.queue.clone(),
            agent: self.agent.clone(),
            tenant: self.tenant.clone(),
            priority: self.priority,
            ordered: false,
        };
        let (reason, error) = (self.reason, self.error.clone());
        let select = Select { filter, states, reason, error, older_than: self.older_than.map(|span| span.0) };
        Ok(Wanted { select, group: self.group })
    }

    /// The flags that say the same again, but for the states; for commands that are shown.
    pub(crate) fn flags(&self) -> String {
        let mut flags = String::new();
        let mut say = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                flags.push_str(&format!(" --{name} {}", quoted(&value)));
            }
        };
        say("queue", self.queue.as_ref().map(ToString::to_string));
        say("agent", self.agent.as_ref().map(ToString::to_string));
        say("tenant", self.tenant.clone());
        say("priority", self.priority.map(|p| p.to_string()));
        say("reason", self.reason.map(|reason| reason.to_string()));
        say("error", self.error.clone());
        say("older-than", self.older_than.map(|Span(age)| compact(age)));
        say("group", self.group.map(|group| group.to_string()));
        flags
    }

    /// The flags that name one group out of those that these match.
    pub(crate) fn of_group(&self, group: Fingerprint) -> String {
        Self { group: Some(group), state: Vec::new(), ..self.clone() }.flags()
    }
}

/// A duration in one word.
fn compact(age: Duration) -> String {
    duration::text(age).replace(' ', "")
}

/// A word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_.:/@%+,".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_was_said() {
        let filter = FilterArgs {
            agent: Some("gpt4".parse().unwrap()),
            error: Some("can't $HOME".into()),
            older_than: Some("90m".parse().unwrap()),
            ..FilterArgs::default()
        };
        assert_eq!(filter.flags(), r" --agent gpt4 --error 'can'\''t $HOME' --older-than 1h30m");
        assert!(FilterArgs::default().is_empty() && !filter.is_empty());
        let group = "0123456789ab".parse().unwrap();
        assert!(filter.of_group(group).ends_with(" --group 0123456789ab"));
    }

    #[test]
    fn priorities_have_their_numbers() {
        let parse = |word: &str| {
            let command = clap::Command::new("x").arg(clap::Arg::new("p").value_parser(priority_parser()));
            command.try_get_matches_from(["x", word]).map(|found| *found.get_one::<Priority>("p").unwrap())
        };
        for priority in Priority::ALL {
            assert_eq!(parse(priority.as_str()).unwrap(), priority);
            assert_eq!(parse(&priority.value().to_string()).unwrap(), priority);
        }
        assert!(parse("hihg").unwrap_err().to_string().contains("'high'"));
    }

    #[test]
    fn states_that_make_no_sense_are_refused_and_a_reason_means_the_dead() {
        let filter = FilterArgs { state: vec![State::Dead], ..FilterArgs::default() };
        assert!(filter.wanted(&[], &[State::Queued]).is_err());
        let filter = FilterArgs { reason: Some(DeadReason::Poison), ..FilterArgs::default() };
        assert_eq!(filter.wanted(&[], &State::ALL).unwrap().select.states, [State::Dead]);
        assert!(filter.wanted(&[State::Queued], &[State::Queued]).is_err());
    }
}
