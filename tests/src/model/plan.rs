//! A history as data: what is done, drawn from a seed before anything runs, so that steps can be left out when it fails.

use super::book::Style as Rules;
use super::rng::Rng;

/// One kind of step; a number beside it decides the rest when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Time goes on, from not at all to seconds.
    Tick,
    /// The server's clock is set back.
    Back,
    /// A minute or a month passes, and keys with a TTL age with it.
    Leap,
    Submit,
    /// A waiting task is called off, forgotten, and handed in again under its old id.
    Reborn,
    Claim,
    /// A claim by a worker that runs alone what was lost before.
    Lone,
    Settle,
    Renew,
    /// A new worker.
    Begin,
    /// A worker falls silent.
    Die,
    /// One that fell silent speaks again.
    Zombie,
    /// The leases of the silent run out.
    Outage,
    /// A sweep, and the reclaim of whom it names.
    Sweep,
    /// A reclaim of just anybody.
    Reclaim,
    /// A worker compares what it holds with what it owns.
    Own,
    Leave,
    Cancel,
    /// An operator changes waiting tasks.
    Alter,
    /// An operator pauses something, or lets it go on.
    Pause,
    /// An operator replays, purges or skips dead tasks.
    Dead,
    Book,
    Status,
    Progress,
    /// Runs say what they have used; also such that are lost.
    Spend,
    Counts,
    /// The bell is heard.
    Wake,
    /// What processes were told is read.
    Notes,
    /// A key is deleted, or becomes one of another type.
    Break,
    /// It is put back, and the shard healed.
    Mend,
}

/// Which promises a history is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// All of them, at every call.
    Strict,
    /// In the middle a key is broken: then that nothing else is lost, and that no script fails to end.
    Broken,
}

impl std::str::FromStr for Sort {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Strict, Self::Broken]
            .into_iter()
            .find(|s| format!("{s:?}").eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("{text:?} is no sort"))
    }
}

/// How one history differs from another.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// All bounds of the scripts are tiny.
    pub tiny: bool,
    pub rules: Rules,
    /// In percent of the tasks: with an order key, a deadline, a delay, an idempotency key.
    pub ordered: u64,
    pub deadline: u64,
    pub delayed: u64,
    pub keyed: u64,
    /// In percent of the settles: not done.
    pub failing: u64,
    /// In percent of the tasks and settles: with an estimate, or what was used.
    pub spending: u64,
    /// In percent of the calls: sent twice, dropped, unanswered, or again later.
    pub trouble: u64,
    /// Largest usual batch.
    pub batch: u64,
    /// The last part is driven by the bell alone.
    pub by_bell: bool,
    /// The last part keeps the book.
    pub keep_book: bool,
}

/// A history.
#[derive(Debug, Clone)]
pub struct Plan {
    pub sort: Sort,
    pub seed: u64,
    pub style: Style,
    pub steps: Vec<(Kind, u64)>,
}

const WEIGHTS: &[(Kind, u64)] = &[
    (Kind::Tick, 13),
    (Kind::Back, 1),
    (Kind::Leap, 1),
    (Kind::Submit, 18),
    (Kind::Reborn, 1),
    (Kind::Claim, 22),
    (Kind::Lone, 2),
    (Kind::Settle, 20),
    (Kind::Renew, 3),
    (Kind::Begin, 2),
    (Kind::Die, 2),
    (Kind::Zombie, 4),
    (Kind::Outage, 2),
    (Kind::Sweep, 5),
    (Kind::Reclaim, 1),
    (Kind::Own, 3),
    (Kind::Leave, 1),
    (Kind::Cancel, 7),
    (Kind::Alter, 4),
    (Kind::Dead, 4),
    (Kind::Pause, 2),
    (Kind::Book, 4),
    (Kind::Status, 2),
    (Kind::Progress, 1),
    (Kind::Spend, 3),
    (Kind::Counts, 1),
    (Kind::Wake, 2),
    (Kind::Notes, 1),
];

impl Plan {
    /// The history of a seed.
    #[must_use]
    pub fn new(sort: Sort, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let one_of = |rng: &mut Rng, from: &[u64]| *rng.pick(from).unwrap_or(&0);
        let style = Style {
            tiny: rng.percent(40),
            rules: Rules {
                rules: one_of(&mut rng, &[0, 15, 40, 70]),
                slots: one_of(&mut rng, &[1, 2, 4]),
                limit: one_of(&mut rng, &[3, 9, 30, 700]),
            },
            ordered: one_of(&mut rng, &[0, 10, 50]),
            deadline: one_of(&mut rng, &[0, 5, 30]),
            delayed: one_of(&mut rng, &[0, 10, 40]),
            keyed: one_of(&mut rng, &[0, 10, 40]),
            failing: one_of(&mut rng, &[5, 20, 60]),
            spending: one_of(&mut rng, &[0, 20, 60]),
            trouble: one_of(&mut rng, &[0, 20, 50]),
            batch: one_of(&mut rng, &[1, 3, 6]),
            by_bell: rng.percent(30),
            keep_book: rng.percent(10),
        };
        let total: u64 = WEIGHTS.iter().map(|(_, w)| w).sum();
        let mut steps = vec![(Kind::Begin, rng.next()), (Kind::Begin, rng.next())];
        if style.rules.rules > 0 {
            steps.push((Kind::Book, rng.next()));
        }
        for _ in 0..rng.within(60, 150) {
            let mut at = rng.below(total);
            let kind = WEIGHTS.iter().find(|(_, w)| {
                if at < *w {
                    true
                } else {
                    at -= w;
                    false
                }
            });
            steps.push((kind.map_or(Kind::Tick, |(k, _)| *k), rng.next()));
        }
        if sort == Sort::Broken {
            let third = steps.len() / 3;
            steps.insert(2 * third, (Kind::Mend, rng.next()));
            steps.insert(third, (Kind::Break, rng.next()));
        }
        Self { sort, seed, style, steps }
    }

    /// The same with only some of its steps.
    #[must_use]
    pub fn only(&self, kept: &[usize]) -> Self {
        let steps = kept.iter().filter_map(|i| self.steps.get(*i).copied()).collect();
        Self { steps, ..self.clone() }
    }
}
