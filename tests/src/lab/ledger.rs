//! The ledger: what handlers wrote down themselves, in a file that no fault of Redis or of a worker can touch.
//!
//! Each run appends a line when it starts and one when it ends; a line is one write. A run that is cut off with its process has no
//! end; one whose future was dropped says so.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Now, in Unix ms: the clock of all processes of a lab, its server included.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How a run ended, as its handler saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It succeeded.
    Done,
    /// It failed, to be tried again.
    Retry,
    /// It was refused for a while.
    Throttled,
    /// It failed for good.
    Dead,
    /// It was told to stop, and did.
    Cut,
    /// Its future was dropped: it did not stop in time, or panicked.
    Dropped,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// None for a start.
    pub end: Option<End>,
    /// The task.
    pub id: String,
    /// Its agent.
    pub agent: String,
    /// Which attempt this is.
    pub attempt: u16,
    /// Runs that were lost before.
    pub losses: u16,
    /// The delivery.
    pub fence: u64,
    /// The id of the worker's life.
    pub worker: String,
    /// The process.
    pub pid: u32,
    /// It is a child for lone work.
    pub lone: bool,
    /// When, Unix ms.
    pub at: u64,
}

/// Writes lines.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    /// Opens a ledger to append to.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().append(true).create(true).open(path)?))
    }

    /// Appends one line by one write.
    ///
    /// # Errors
    /// The operating system's.
    pub fn append(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        (&self.0).write_all(&text)
    }
}

/// One run: its start, and its end if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The start.
    pub start: Line,
    /// How and when it ended, Unix ms.
    pub end: Option<(End, u64)>,
}

/// All that was written so far.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The runs of each task, by fence.
    pub runs: BTreeMap<String, Vec<Run>>,
    /// Bytes of the file that were read.
    read: u64,
}

impl Ledger {
    /// Reads what was written since the last time. A file that is not there yet is an empty ledger.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read_on(&mut self, path: &Path) {
        let bytes = match rest_of(path, self.read) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => panic!("the ledger cannot be read: {error}"),
        };
        // What follows the last newline is a line in the making.
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        for text in bytes[..whole].split(|b| *b == b'\n').filter(|text| !text.is_empty()) {
            let line: Line = serde_json::from_slice(text).unwrap_or_else(|error| {
                panic!("a broken line in the ledger, {:?}: {error}", String::from_utf8_lossy(text))
            });
            let runs = self.runs.entry(line.id.clone()).or_default();
            let at = runs.partition_point(|run| run.start.fence < line.fence);
            match line.end {
                None => runs.insert(at, Run { start: line, end: None }),
                Some(end) => {
                    let run =
                        runs.get_mut(at).unwrap_or_else(|| panic!("an end without a start in the ledger: {line:?}"));
                    run.end = Some((end, line.at));
                }
            }
        }
    }

    /// The runs of one task.
    #[must_use]
    pub fn of(&self, id: &str) -> &[Run] {
        self.runs.get(id).map_or(&[], |runs| runs)
    }

    /// All runs.
    pub fn all(&self) -> impl Iterator<Item = &Run> {
        self.runs.values().flatten()
    }

    /// Runs that have started and not ended, of one process.
    pub fn running(&self, pid: u32) -> impl Iterator<Item = &Run> {
        self.all().filter(move |run| run.start.pid == pid && run.end.is_none())
    }

    /// How many runs there were.
    #[must_use]
    pub fn starts(&self) -> usize {
        self.runs.values().map(Vec::len).sum()
    }

    /// How many tasks have a run that ended so.
    #[must_use]
    pub fn ended(&self, end: End) -> usize {
        let so = |runs: &&Vec<Run>| runs.iter().any(|run| run.end.is_some_and(|(e, _)| e == end));
        self.runs.values().filter(so).count()
    }
}

fn rest_of(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(io::SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
