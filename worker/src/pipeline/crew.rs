//! The crew: the agents of this worker under numbers, sorted by name.

use std::collections::HashMap;

use tidemill_common::name::AgentName;

use crate::handler::{Agent, Registry};

/// The agents of this worker, numbered.
#[derive(Debug)]
pub(crate) struct Crew {
    members: Vec<Member>,
    numbers: HashMap<AgentName, usize>,
}

/// One agent.
pub(crate) struct Member {
    pub(crate) name: AgentName,
    pub(crate) agent: Agent,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Crew {
    pub(crate) fn new(registry: &Registry) -> Self {
        let member = |(name, agent): (&AgentName, &Agent)| Member {
            name: name.clone(),
            agent: Agent { handler: registry.around(agent), ..agent.clone() },
        };
        let mut members: Vec<Member> = registry.iter().map(member).collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let numbers = members.iter().enumerate().map(|(number, m)| (m.name.clone(), number)).collect();
        Self { members, numbers }
    }

    pub(crate) fn member(&self, number: usize) -> &Member {
        &self.members[number]
    }

    /// All of them, by number.
    pub(crate) fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.iter()
    }

    pub(crate) fn number(&self, name: &AgentName) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn names(&self) -> Vec<AgentName> {
        self.members.iter().map(|m| m.name.clone()).collect()
    }
}
