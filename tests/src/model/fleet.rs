//! The workers and the sweep, by what they were told.

use std::collections::BTreeSet;

use tidemill_common::name::WorkerId;
use tidemill_common::store::{Accepted, Settled};

/// What the server knows of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing yet, or nothing any more.
    No,
    /// Its lease ends at this server time, ms.
    Until(u64),
    /// It was given up.
    GivenUp,
}

/// The answers of one lane.
#[derive(Debug, Clone)]
pub struct Lane {
    pub seq: u64,
    pub answers: (Vec<Settled>, Vec<Accepted>),
}

/// One worker.
#[derive(Debug, Clone)]
pub struct Worker {
    pub id: WorkerId,
    pub known: Known,
    /// It still does what a worker should; else it is dead, or a zombie.
    pub well: bool,
    /// Only ever claims alone.
    pub lone: bool,
    /// Which of the agents it runs, as bits.
    pub agents: u8,
    /// Its own numbers.
    pub claim_seq: u64,
    pub lane_seq: [u64; 4],
    /// Deliveries that it knows of.
    pub held: BTreeSet<(String, u64)>,
    /// What the server remembers of its last claim that returned something: sequence, and id and fence in order.
    pub claim: Option<(u64, Vec<(String, u64)>)>,
    pub lanes: [Option<Lane>; 4],
}

impl Worker {
    pub fn new(id: WorkerId, agents: u8, lone: bool) -> Self {
        Self {
            id,
            known: Known::No,
            well: true,
            lone,
            agents,
            claim_seq: 0,
            lane_seq: [0; 4],
            held: BTreeSet::new(),
            claim: None,
            lanes: [None, None, None, None],
        }
    }

    /// Its score in `B:w`.
    pub fn score(&self) -> Option<u64> {
        match self.known {
            Known::No => None,
            Known::Until(ms) => Some(ms),
            Known::GivenUp => Some(0),
        }
    }

    /// The server forgets all of it.
    pub fn forget(&mut self) {
        self.known = Known::No;
        self.claim = None;
        self.lanes = [None, None, None, None];
    }
}

/// All workers, and who sweeps.
#[derive(Debug, Default)]
pub struct Fleet {
    pub workers: Vec<Worker>,
    pub holder: Option<usize>,
    pub until: u64,
    pub last: Option<u64>,
    pub beat: Option<u64>,
    pub grace: u64,
}

impl Fleet {
    /// The worker whose lease ran out first.
    pub fn expired(&self, now: u64) -> Option<usize> {
        let all = self.workers.iter().enumerate().filter_map(|(i, w)| Some((w.score()?, w.id.as_str(), i)));
        all.filter(|(score, ..)| *score <= now).min().map(|(.., i)| i)
    }

    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.workers.iter().position(|w| w.id.as_str() == name)
    }

    pub fn well(&self) -> Vec<usize> {
        self.workers.iter().enumerate().filter(|(_, w)| w.well).map(|(i, _)| i).collect()
    }
}
