//! What the world must look like: every task's life, told from the answers alone. It knows nothing of streams, lines and scripts.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidemill_common::book::Book;
use tidemill_common::envelope;
use tidemill_common::spend::Spend;
use tidemill_common::store::Accepted;
use tidemill_common::task::{Mode, NewTask, Priority};

use super::budgets::Taken;
use super::fleet::Fleet;
use super::gates::Gates;

/// Outcome records stay for this long at least, in ms.
pub const RESEND_MS: u64 = 120_000;
/// An idempotency key outlives its task by so many ms.
pub const KEY_MS: u64 = 86_400_000;
/// Dead tasks are kept for so many ms.
pub const DEAD_MS: u64 = 90 * 86_400_000;
/// After so many losses a task runs alone.
pub const SUSPECT: u64 = 2;

/// A delivery that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub worker: usize,
    pub fence: u64,
    pub attempt: u64,
    pub start: u64,
    pub cancel: bool,
    pub lone: bool,
    /// It had a history when it was handed over.
    pub history: bool,
    pub taken: Vec<Taken>,
    /// What it has said so far that it uses.
    pub reported: Option<Spend>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub letter: u8,
    /// Why it is dead.
    pub why: u8,
    pub attempt: u64,
    pub losses: u64,
    pub fence: u64,
    pub start: u64,
    pub at: u64,
    pub data: Bytes,
    /// The age of the world at which its record goes.
    pub record_until: u64,
    /// A dead task that is kept.
    pub kept: bool,
}

/// Where a task is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    Waiting,
    Running(Run),
    Ended(End),
}

/// What is remembered of runs that failed or were lost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Past {
    pub attempts: u64,
    pub losses: u64,
    pub lone: u64,
    pub backs: u64,
    pub replays: u64,
    pub fence: u64,
    pub errors: Vec<(u64, u64, Vec<u8>)>,
}

impl Past {
    /// Another error: five are kept, the newest whole.
    pub fn note(&mut self, at: u64, attempt: u64, text: &[u8]) {
        self.errors.iter_mut().for_each(|(_, _, old)| old.truncate(256));
        self.errors.insert(0, (at, attempt, text[..text.len().min(1024)].to_vec()));
        self.errors.truncate(5);
    }
    /// All losses.
    pub fn lost(&self) -> u64 {
        self.losses + self.lone
    }
}

/// A task.
#[derive(Debug, Clone)]
pub struct Known {
    pub new: NewTask,
    pub header: Bytes,
    pub body: Bytes,
    pub seq: u64,
    pub generation: u32,
    pub due: u64,
    pub expires: u64,
    pub life: Life,
    pub past: Option<Past>,
    /// The deadline that is in the index; 0: none is.
    pub indexed: u64,
    /// Not before this, server ms; 0 once that has come, also if the clock goes back again.
    pub not_before: u64,
}

impl Known {
    pub fn run(&self) -> Option<&Run> {
        if let Life::Running(run) = &self.life { Some(run) } else { None }
    }
    pub fn end(&self) -> Option<&End> {
        if let Life::Ended(end) = &self.life { Some(end) } else { None }
    }
    pub fn waits(&self) -> bool {
        self.life == Life::Waiting
    }
    /// It has an envelope.
    pub fn is_kept(&self) -> bool {
        self.end().is_none_or(|end| end.kept)
    }
    /// When it is too old to be run, server ms; 0: never.
    pub fn too_old(&self) -> u64 {
        self.new.max_age.map_or(0, |age| self.seq / 1000 + u64::try_from(age.as_millis()).expect("short"))
    }
    /// The deadline that holds: one that has started once has met the one for its start.
    pub fn deadline(&self) -> u64 {
        if self.past.is_none() { self.expires } else { self.too_old() }
    }
    /// It should have started by now, or is too old.
    pub fn is_late(&self, now: u64) -> bool {
        self.deadline() > 0 && self.deadline() <= now
    }
    /// Its content is another: the header is written anew.
    pub fn altered(&mut self) {
        self.header = envelope::seal(&self.new).expect("histories make sealable tasks").header;
        self.generation = super::replace::next_generation(self.generation);
    }
    pub fn place(&self) -> i64 {
        place(self.seq, self.new.priority)
    }
    pub fn past(&self) -> Past {
        self.past.clone().unwrap_or_default()
    }
    pub fn waits_field(&self) -> String {
        format!("w:{}:{}", self.new.priority.value(), self.new.queue)
    }
    /// Its envelope, byte for byte.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "below 2^53; headers are short")]
    pub fn stored(&self) -> Vec<u8> {
        let mut envelope = vec![1];
        envelope.extend_from_slice(&self.generation.to_be_bytes());
        for number in [self.seq, self.due, self.expires] {
            envelope.extend_from_slice(&(number as f64).to_be_bytes());
        }
        envelope.extend_from_slice(&(self.header.len() as u16).to_be_bytes());
        envelope.extend_from_slice(&self.header);
        envelope.extend_from_slice(&self.body);
        envelope
    }
    /// It keeps those behind it in its order key waiting.
    pub fn leads(&self) -> bool {
        self.end().is_none_or(|end| end.kept && self.new.hold_on_dead)
    }
}

/// The place of a task in every line: when it came, less its priority's lead.
pub fn place(seq: u64, priority: Priority) -> i64 {
    let lead = match priority {
        Priority::Urgent => 300_000_000,
        Priority::High => 60_000_000,
        Priority::Normal => 10_000_000,
        Priority::Low => 0,
    };
    i64::try_from(seq).unwrap_or(i64::MAX) - lead
}

/// Owner of an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOwner {
    pub id: String,
    pub fingerprint: String,
    /// The age of the world at which it goes; none while its task lives.
    pub until: Option<u64>,
}

/// The reference model.
#[derive(Debug, Default)]
pub struct Reference {
    /// Server time, µs.
    pub now: u64,
    /// The highest clock that marks may still have been written by, µs.
    pub high: u64,
    /// Time that has really passed, µs: never goes back.
    pub real: u64,
    /// How far the world has aged for TTLs, ms.
    pub age: u64,
    pub seq: u64,
    pub fence: u64,
    pub tasks: BTreeMap<String, Known>,
    pub keys: BTreeMap<(String, String), KeyOwner>,
    pub orders: BTreeMap<String, BTreeSet<(u64, String)>>,
    pub queues: BTreeSet<String>,
    pub ended: BTreeMap<&'static str, u64>,
    /// Deaths, by the letter of the reason.
    pub deaths: BTreeMap<u8, u64>,
    /// Refused since their queue was full.
    pub refused: u64,
    /// Tasks handed over, by the counter of those that wait.
    pub taken: BTreeMap<String, u64>,
    pub waits: BTreeMap<String, Vec<String>>,
    /// Who was told of which end, and has not read it yet.
    pub woken: BTreeMap<String, Vec<String>>,
    pub book: Book,
    /// What is paused: until when, server ms; 0: until it is resumed.
    pub pauses: BTreeMap<String, u64>,
    /// Lines may not know yet of the last book.
    pub unrefreshed: bool,
    pub gates: Gates,
    pub fleet: Fleet,
    /// How long the test itself may have taken, ms: TTLs run by the machine's clock.
    pub slack: u64,
    /// Most that one sweep or reclaim does.
    pub page: usize,
}

impl Reference {
    pub fn now_ms(&self) -> u64 {
        self.now / 1000
    }

    /// The clock is set; what is due by then may be delivered.
    pub fn set_now(&mut self, us: u64) {
        if us > self.now {
            self.real += us - self.now;
        }
        self.now = us;
        self.high = self.high.max(us);
        let now = us / 1000;
        self.pauses.retain(|_, until| *until == 0 || *until > now);
        for task in self.tasks.values_mut().filter(|t| t.not_before <= now) {
            task.not_before = 0;
        }
    }

    pub fn count(&mut self, outcome: &'static str, n: u64) {
        *self.ended.entry(outcome).or_default() += n;
    }

    pub fn next_fences(&mut self, n: u64) -> u64 {
        let first = self.now.max(self.fence + 1);
        self.fence = first + n - 1;
        first
    }

    fn record_exists(&self, id: &str) -> bool {
        self.tasks.get(id).is_some_and(|t| t.end().is_some_and(|e| e.record_until > self.age))
    }

    /// Whether an id is taken: its task is here, or its end is still remembered.
    pub fn is_known(&self, id: &str) -> bool {
        self.tasks.get(id).is_some_and(Known::is_kept) || self.record_exists(id)
    }

    /// The key's owner, unless it has expired.
    pub fn owner(&self, key: &(String, String)) -> Option<&KeyOwner> {
        self.keys.get(key).filter(|o| o.until.is_none_or(|until| until > self.age))
    }

    pub fn waiting_in(&self, field: &str) -> u64 {
        self.tasks.values().filter(|t| t.waits() && t.waits_field() == field).count() as u64
    }

    /// Takes tasks in, as a submit or a handler's outbox does, and says what the answer must be.
    pub fn accept(&mut self, tasks: &[NewTask], most: u64) -> Vec<Accepted> {
        if tasks.is_empty() {
            return Vec::new();
        }
        let first = self.now.max(self.seq + 1);
        self.seq = first + tasks.len() as u64 - 1;
        let mut answers = vec![Accepted::Invalid; tasks.len()];
        // Those that may take another's place come last.
        for moded in [false, true] {
            for (i, task) in tasks.iter().enumerate().filter(|(_, t)| (t.mode != Mode::Reject) == moded) {
                let seq = if moded { self.now.max(self.seq + 1) } else { first + i as u64 };
                answers[i] = self.accept_one(task, seq, most);
                if answers[i] == Accepted::New(task.id.clone()) {
                    self.seq = self.seq.max(seq);
                }
            }
        }
        answers
    }

    fn accept_one(&mut self, task: &NewTask, seq: u64, most: u64) -> Accepted {
        let id = task.id.as_str();
        if !is_readable(task) {
            return Accepted::Invalid;
        }
        if self.is_known(id) {
            return Accepted::Duplicate(task.id.clone());
        }
        let never = self.never_fits(task).map(|gate| Accepted::NeverFits { gate });
        if let Some(never) = never.clone().filter(|_| task.mode != Mode::Reject) {
            return never;
        }
        if task.mode != Mode::Reject
            && let Some(answer) = self.replace(task)
        {
            return answer;
        }
        let sealed = envelope::seal(task).expect("histories make sealable tasks");
        let key = task.key.as_ref().map(|key| (task.tenant.clone(), key.clone()));
        if let Some(owner) = key.as_ref().and_then(|k| self.owner(k)).filter(|_| task.mode == Mode::Reject) {
            let other = owner.id.parse().expect("an id");
            return if owner.fingerprint == sealed.fingerprint {
                Accepted::Duplicate(other)
            } else {
                Accepted::Conflict(other)
            };
        }
        if let Some(never) = never {
            return never;
        }
        let now = self.now_ms();
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).expect("short");
        let expires = expires(task, seq, now);
        let known = Known {
            new: task.clone(),
            header: sealed.header,
            body: sealed.body,
            seq,
            generation: low(seq),
            due: if task.delay.is_zero() { 0 } else { now + ms(task.delay) },
            expires,
            life: Life::Waiting,
            past: None,
            indexed: expires,
            not_before: if task.delay.is_zero() { 0 } else { now + ms(task.delay) },
        };
        let room = if task.priority == Priority::Low { (most * 4 / 5).max(1) } else { most };
        if most > 0 && self.waiting_in(&known.waits_field()) >= room {
            self.refused += 1;
            return Accepted::Full { retry_after_ms: 0 };
        }
        if let Some(key) = key {
            self.keys.insert(key, KeyOwner { id: id.to_owned(), fingerprint: sealed.fingerprint, until: None });
        }
        if let Some(order) = &task.order_key {
            self.orders.entry(order.clone()).or_default().insert((seq, id.to_owned()));
        }
        self.queues.insert(task.queue.to_string());
        self.tasks.insert(id.to_owned(), known);
        Accepted::New(task.id.clone())
    }

    /// Ends a task: what goes, what stays and for how long.
    pub fn end(&mut self, id: &str, end: End, past: Option<Past>) {
        let outcome = match end.letter {
            b'd' => "done",
            b'x' => "dead",
            b'c' => "cancelled",
            _ => "expired",
        };
        self.count(outcome, 1);
        if end.letter == b'x' {
            *self.deaths.entry(end.why).or_default() += 1;
        }
        for client in self.waits.remove(id).unwrap_or_default() {
            self.woken.entry(client).or_default().push(id.to_owned());
        }
        let age = self.age;
        let task = self.tasks.get_mut(id).expect("it was known");
        task.indexed = 0;
        task.past = past;
        let gone = !end.kept;
        task.life = Life::Ended(end);
        let key = task.new.key.as_ref().filter(|_| gone).map(|key| (task.new.tenant.clone(), key.clone()));
        if let Some(owner) = key.and_then(|key| self.keys.get_mut(&key)).filter(|owner| owner.id == id) {
            owner.until = Some(age + KEY_MS);
        }
        if !task.leads() {
            self.leave_order(id);
        }
    }

    pub fn leave_order(&mut self, id: &str) {
        let Some(task) = self.tasks.get(id) else { return };
        let Some(order) = task.new.order_key.clone() else { return };
        let entry = (task.seq, id.to_owned());
        if let Some(all) = self.orders.get_mut(&order) {
            all.remove(&entry);
            if all.is_empty() {
                self.orders.remove(&order);
            }
        }
    }

    /// A dead task that retention drops.
    pub fn drop_dead(&mut self, id: &str) {
        let age = self.age;
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.past = None;
        if let Life::Ended(end) = &mut task.life {
            (end.kept, end.record_until) = (false, 0);
        }
        let key = task.new.key.as_ref().map(|key| (task.new.tenant.clone(), key.clone()));
        if let Some(owner) = key.and_then(|key| self.keys.get_mut(&key)).filter(|owner| owner.id == id) {
            owner.until = Some(age + KEY_MS);
        }
        self.leave_order(id);
    }

    /// A new end record.
    pub fn record(&self, letter: u8, run: Option<&Run>, past: &Past, data: &[u8], keep_ms: u64) -> End {
        self.record_why(letter, b'-', run, past, data, keep_ms)
    }

    /// A new end record, with the reason of a death.
    pub fn record_why(&self, letter: u8, why: u8, run: Option<&Run>, past: &Past, data: &[u8], keep_ms: u64) -> End {
        let ttl = if letter == b'x' { DEAD_MS } else { keep_ms.max(RESEND_MS) };
        End {
            letter,
            why,
            losses: past.lost(),
            attempt: run.map_or(past.attempts, |r| r.attempt),
            fence: run.map_or(past.fence, |r| r.fence),
            start: run.map_or(0, |r| r.start),
            at: self.now_ms(),
            data: Bytes::copy_from_slice(data),
            record_until: self.age + ttl,
            kept: letter == b'x',
        }
    }

    /// The first task of an order key, the only one that may be elsewhere.
    pub fn order_head(&self, order: &str) -> Option<&str> {
        self.orders.get(order)?.first().map(|(_, id)| id.as_str())
    }

    /// The task and its run, if this fence is its current one.
    pub fn current(&self, id: &str, fence: u64) -> Option<(&Known, &Run)> {
        let task = self.tasks.get(id)?;
        task.run().filter(|r| r.fence == fence).map(|r| (task, r))
    }

    /// What a worker runs: id and fence.
    pub fn running_of(&self, worker: usize) -> BTreeSet<(String, u64)> {
        let of = |(id, t): (&String, &Known)| t.run().filter(|r| r.worker == worker).map(|r| (id.clone(), r.fence));
        self.tasks.iter().filter_map(of).collect()
    }

    /// Waiting tasks that a claim may end: too late, or impossible under the book in force.
    pub fn suspects(&self) -> Vec<String> {
        let now = self.now_ms();
        let ends = |t: &Known| t.waits() && (t.is_late(now) || self.never_fits(&t.new).is_some());
        self.tasks.iter().filter(|(_, t)| ends(t)).map(|(id, _)| id.clone()).collect()
    }
}

/// The first of its deadlines, server ms; 0: it has none.
pub fn expires(task: &NewTask, seq: u64, now: u64) -> u64 {
    let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).expect("short");
    let all = [task.start_within.map(|d| now + ms(d)), task.max_age.map(|d| seq / 1000 + ms(d))];
    all.into_iter().flatten().min().unwrap_or(0)
}

/// The generation that a sequence stands for.
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
pub fn low(seq: u64) -> u32 {
    seq as u32
}

/// Whether a script can read the task; histories make unreadable ones by nesting too deep or by no attempts.
pub fn is_readable(task: &NewTask) -> bool {
    task.depth <= 32 && task.max_attempts > 0
}
