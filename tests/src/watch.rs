//! What a worker process costs while a fault lasts: its own CPU time, and the lines it logs.
//!
//! A loop around an instant error burns a core and fills the log within a second; a worker that waits does neither. CPU time
//! is the process's own, so that a busy machine does not count against it.

use std::time::{Duration, Instant};

use crate::lab::WorkerProcess;

/// Ticks of `/proc/<pid>/stat` a second, on every Linux that we build for.
const TICKS_PER_SECOND: u64 = 100;
/// A quarter of a core: a build for debugging works hard at what it has to do.
const CPU_SHARE: f64 = 0.25;
/// What starting anew (a connection, a life) may take beside that.
const CPU_ONCE: Duration = Duration::from_millis(150);
/// "A few lines a second".
const LINES_PER_SECOND: f64 = 5.0;
/// What the fault itself and the recovery have to say.
const LINES_ONCE: f64 = 30.0;

/// The CPU time that a process has used so far; none when it is gone.
#[must_use]
pub fn cpu(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, with whatever is in it; the fields after it begin with the third.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let (user, system) = (ticks(14)?, ticks(15)?);
    Some(Duration::from_millis((user + system) * 1_000 / TICKS_PER_SECOND))
}

/// Whether a process is stopped, all of its threads: a while after SIGSTOP was sent.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stat = |path: std::path::PathBuf| std::fs::read_to_string(path.join("stat")).unwrap_or_default();
    tasks
        .map(|task| stat(task.path()))
        .all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}

/// What one worker has cost since this was made.
#[derive(Debug)]
pub struct Watch {
    worker: WorkerProcess,
    since: Instant,
    cpu: Duration,
    lines: usize,
}

impl Watch {
    /// Counts from now on.
    #[must_use]
    pub fn on(worker: &WorkerProcess) -> Self {
        let (cpu, lines) = (cpu(worker.pid()).unwrap_or_default(), worker.log().lines().count());
        Self { worker: worker.clone(), since: Instant::now(), cpu, lines }
    }

    /// Neither a busy loop nor a flood of lines.
    ///
    /// # Panics
    ///
    /// When the worker used more than a quarter of a core, logged more than a few lines a second, or is gone.
    pub fn assert_calm(&self) {
        let (worker, seconds) = (&self.worker, self.since.elapsed().as_secs_f64());
        let Some(cpu) = cpu(worker.pid()) else { panic!("worker {} is gone", worker.setup().name) };
        let (used, may) = (cpu - self.cpu, CPU_ONCE + Duration::from_secs_f64(seconds * CPU_SHARE));
        assert!(used <= may, "worker {} used {used:?} of CPU in {seconds:.2} s; {may:?} are calm", worker.setup().name);
        let log = worker.log();
        let lines = log.lines().count() - self.lines;
        #[expect(clippy::cast_precision_loss, reason = "a count of lines")]
        let few = lines as f64 <= LINES_ONCE + seconds * LINES_PER_SECOND;
        let last = || log.lines().rev().take(5).collect::<Vec<_>>().join("\n  ");
        assert!(few, "worker {} logged {lines} lines in {seconds:.2} s, at last:\n  {}", worker.setup().name, last());
    }
}
