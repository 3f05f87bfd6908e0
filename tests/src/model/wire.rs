//! What lies in Redis, decoded from the documents' description (`common/lua/lib/*.lua` headers), not by the product's code.

use super::budgets::Taken;

/// Reads big-endian fields from the front.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    pub fn uint(&mut self, n: usize) -> Option<u64> {
        Some(self.take(n)?.iter().fold(0, |all, b| all << 8 | u64::from(*b)))
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers below 2^53")]
    pub fn whole(&mut self) -> Option<u64> {
        let n = f64::from_be_bytes(self.take(8)?.try_into().ok()?);
        (n.fract() == 0.0 && (0.0..9e15).contains(&n)).then_some(n as u64)
    }
    pub fn str8(&mut self) -> Option<String> {
        let len = usize::try_from(self.uint(1)?).ok()?;
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }
}

/// The header of an envelope, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub generation: u64,
    pub seq: u64,
    pub due: u64,
    pub expires: u64,
    /// From the client's flags on.
    pub client: Vec<u8>,
}

pub fn envelope(bytes: &[u8]) -> Option<Envelope> {
    let mut f = Fields(bytes);
    (f.uint(1)? == 1).then_some(())?;
    Some(Envelope {
        generation: f.uint(4)?,
        seq: f.whole()?,
        due: f.whole()?,
        expires: f.whole()?,
        client: f.0.to_vec(),
    })
}

/// A row of `B:run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub fence: u64,
    pub start: u64,
    pub attempt: u64,
    pub max: u64,
    pub priority: u64,
    pub flags: u64,
    pub marks: u64,
    pub source: u8,
    pub entry: String,
    pub worker: String,
    pub queue: String,
    pub agent: String,
    pub taken: Vec<Taken>,
}

pub const MARK_CANCEL: u64 = 1;
pub const MARK_HISTORY: u64 = 2;
pub const MARK_LONE: u64 = 4;
pub const MARK_TAKEN: u64 = 8;
pub const MARK_BUDGET: u64 = 16;

pub fn row(bytes: &[u8]) -> Option<Row> {
    let mut f = Fields(bytes);
    let mut row = Row {
        fence: f.whole()?,
        start: f.whole()?,
        attempt: f.uint(2)?,
        max: f.uint(2)?,
        priority: f.uint(1)?,
        flags: f.uint(1)?,
        marks: f.uint(1)?,
        source: *f.take(1)?.first()?,
        entry: f.str8()?,
        queue: f.str8()?,
        agent: f.str8()?,
        worker: f.str8()?,
        taken: Vec::new(),
    };
    while !f.0.is_empty() {
        let (units, loss) = (f.whole()?, char::from(*f.take(1)?.first()?));
        let len = usize::try_from(f.uint(2)?).ok()?;
        row.taken.push(Taken { gate: String::from_utf8(f.take(len)?.to_vec()).ok()?, units, loss });
    }
    Some(row)
}

/// One trailing window of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charged {
    pub ms: u64,
    pub limit: u64,
    pub charged: u64,
    pub debt: u64,
}

pub fn budget(bytes: &[u8]) -> Option<Vec<Charged>> {
    let (mut f, mut windows) = (Fields(bytes), Vec::new());
    while !f.0.is_empty() {
        let (ms, limit, _, charged, debt) = (f.whole()?, f.whole()?, f.whole()?, f.whole()?, f.whole()?);
        f.take(16 + 61 * 8)?;
        windows.push(Charged { ms, limit, charged, debt });
    }
    Some(windows)
}

/// The state of a slot gate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    pub used: u64,
    pub reserved: Option<(i64, String)>,
}

#[expect(clippy::cast_possible_truncation, reason = "places are whole numbers below 2^53")]
pub fn slots(bytes: &[u8]) -> Option<Slots> {
    let mut f = Fields(bytes);
    let used = f.whole()?;
    if f.0.is_empty() {
        return Some(Slots { used, reserved: None });
    }
    let place = f64::from_be_bytes(f.take(8)?.try_into().ok()?) as i64;
    Some(Slots { used, reserved: Some((place, String::from_utf8(f.0.to_vec()).ok()?)) })
}

/// A field of `B:at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    pub attempts: u64,
    pub losses: u64,
    pub lone: u64,
    pub backs: u64,
    pub replays: u64,
    pub fence: u64,
    /// When, of which attempt, and what; the newest first.
    pub errors: Vec<(u64, u64, Vec<u8>)>,
}

pub fn at(bytes: &[u8]) -> Option<At> {
    let mut f = Fields(bytes);
    Some(At {
        attempts: f.uint(2)?,
        losses: f.uint(2)?,
        lone: f.uint(2)?,
        backs: f.uint(2)?,
        replays: f.uint(2)?,
        fence: f.whole()?,
        errors: errors(&mut f)?,
    })
}

fn errors(f: &mut Fields<'_>) -> Option<Vec<(u64, u64, Vec<u8>)>> {
    let mut all = Vec::new();
    while !f.0.is_empty() {
        let (at, attempt) = (f.whole()?, f.uint(2)?);
        let bytes = usize::try_from(f.uint(2)?).ok()?;
        all.push((at, attempt, f.take(bytes)?.to_vec()));
    }
    Some(all)
}

/// An outcome record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub letter: u8,
    pub why: u8,
    pub attempt: u64,
    pub losses: u64,
    pub fence: u64,
    pub start: u64,
    pub at: u64,
    pub data: Vec<u8>,
}

pub fn outcome(bytes: &[u8]) -> Option<Outcome> {
    let mut f = Fields(bytes);
    let letter = *f.take(1)?.first()?;
    b"dxce".contains(&letter).then_some(())?;
    Some(Outcome {
        letter,
        why: *f.take(1)?.first()?,
        fence: f.whole()?,
        attempt: f.uint(2)?,
        losses: f.uint(2)?,
        start: f.whole()?,
        at: f.whole()?,
        data: f.0.to_vec(),
    })
}
