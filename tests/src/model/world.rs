//! One history on one server: makes the calls, lets the reference judge the answers, and compares the whole now and then.

use std::collections::BTreeSet;
use std::time::Duration;

use tidemill_common::keys::Base;
use tidemill_common::name::WorkerId;
use tidemill_common::store::{Edit, RedisOptions, Store};
use tidemill_embedded::{Connection, Options, Reply, Server};
use tokio::runtime::Runtime;

use super::broken::Broken;
use super::call::{Answer, Call};
use super::fleet::Worker;
use super::judge::{Peek, judge};
use super::pair::{self, Instant};
use super::plan::Style;
use super::reference::Reference;
use super::rng::Rng;
use super::snapshot::Snapshot;
use super::wire::{self, Outcome};
use super::{Verdict, Violation, whole};

/// When histories begin, µs.
pub const EPOCH_US: u64 = 1_700_000_000_000_000;
/// No script of a history runs for so long unless it never ends, ms.
const SCRIPT_MS: u64 = 8_000;
/// What a sweep or reclaim does at most, as in the store.
const PAGE: usize = 100;

/// Bounds of the scripts made tiny, so that histories of a hundred tasks meet them.
pub const TINY: &[Edit] = &[
    Edit { from: "local MOVES_MAX, RESERVED = 32,", to: "local MOVES_MAX, RESERVED = 2," },
    Edit { from: "local RING_MAX, RATE_HEAD = 512, 40", to: "local RING_MAX, RATE_HEAD = 4, 40" },
    Edit { from: "looks = most + math.min(most + 16, 64), ghosts = 256", to: "looks = most + 1, ghosts = 2" },
    Edit { from: "call('ZRANGE', live, 0, 7)", to: "call('ZRANGE', live, 0, 0)" },
    Edit { from: "'LIMIT', 0, 8 + C.nblocked)", to: "'LIMIT', 0, 1 + C.nblocked)" },
    Edit { from: "math.min(k, 16, C.most - C.n)", to: "math.min(k, 2, C.most - C.n)" },
    Edit { from: "promote(math.max(16, most))", to: "promote(2)" },
    Edit { from: "local me, most = ARGV[1], tonumber(ARGV[4])", to: "local me, most = ARGV[1], 2" },
    Edit {
        from: "local dead, most, poison = ARGV[1], tonumber(ARGV[2]),",
        to: "local dead, most, poison = ARGV[1], 2,",
    },
    Edit { from: "{ tonumber(ARGV[2]), ARGV[3] }, tonumber(ARGV[4])", to: "{ tonumber(ARGV[2]), ARGV[3] }, 2" },
];

/// A server with the connections to it: one history after the other runs on it.
pub struct Host {
    edits: Vec<Edit>,
    pub server: Server,
    conn: Connection,
    runtime: Runtime,
    stores: [Store; 2],
    base: Base,
}

impl Host {
    /// Starts one; `edits` are mistakes for the scripts.
    ///
    /// # Panics
    /// When there is no server, or it does not answer.
    #[must_use]
    pub fn start(edits: &[Edit]) -> Self {
        let server = crate::server::start_with(Options::new().config_line("busy-reply-threshold 6000"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut conn = server.connect().expect("a connection");
        let base = Base::new(0);
        let options = RedisOptions {
            url: server.url(),
            retry_for_ms: 0,
            command_timeout_ms: SCRIPT_MS,
            ..RedisOptions::default()
        };
        let connect = |edits: Vec<Edit>| {
            runtime.block_on(Store::connect_edited(&options, &edits)).unwrap_or_else(|e| panic!("cannot connect: {e}"))
        };
        let stores = [connect(edits.to_vec()), connect(TINY.iter().chain(edits).copied().collect())];
        conn.command(&["PING"]).expect("an answer");
        Self { edits: edits.to_vec(), server, conn, runtime, stores, base }
    }

    /// An empty server; another one when a script of the last history still runs in this one.
    fn clear(&mut self) -> Verdict {
        if self.ask(&["FLUSHALL"]).is_ok_and(|reply| reply.as_error().is_none()) {
            return Ok(());
        }
        let edits = std::mem::take(&mut self.edits);
        self.server.kill().map_err(|e| Violation(format!("the server cannot be ended: {e}")))?;
        *self = Self::start(&edits);
        Ok(())
    }

    fn ask(&mut self, args: &[&str]) -> Result<Reply, Violation> {
        self.conn.command(args).map_err(|e| Violation(format!("{args:?} got no reply: {e}")))
    }
}

impl Peek for Host {
    fn outcome(&mut self, id: &str) -> Result<Option<Outcome>, Violation> {
        for kind in ["r", "j"] {
            let key = self.base.key(&format!("{kind}:{id}"));
            let found = self.ask(&["GET", &key])?.as_bytes().and_then(wire::outcome);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
    fn running(&mut self) -> Result<BTreeSet<String>, Violation> {
        let key = self.base.key("run");
        let reply = self.ask(&["HKEYS", &key])?;
        Ok(reply.as_array().unwrap_or_default().iter().filter_map(|r| r.as_str().map(str::to_owned)).collect())
    }
}

/// How closely to look.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// In percent of the calls: the whole is compared before and after.
    pub checks: u64,
    /// All calls and answers are written down.
    pub trace: bool,
}

/// A history under way.
pub struct World<'h> {
    pub host: &'h mut Host,
    pub r: Reference,
    pub style: Style,
    pub watch: Watch,
    /// While a key is broken, answers are not judged, only learned from.
    pub broken: Option<Broken>,
    pub trace: Vec<String>,
    /// Calls made so far.
    pub calls: u64,
    /// Full checks made so far.
    pub checked: u64,
    names: Vec<WorkerId>,
    began: std::time::Instant,
    seen: Option<Instant>,
    looks: Rng,
}

impl<'h> World<'h> {
    /// An empty world.
    pub fn new(host: &'h mut Host, style: Style, watch: Watch, seed: u64) -> Result<Self, Violation> {
        host.clear()?;
        let page = if style.tiny { 2 } else { PAGE };
        let r = Reference { page, ..Reference::default() };
        let mut world = Self {
            host,
            r,
            style,
            watch,
            broken: None,
            trace: Vec::new(),
            calls: 0,
            checked: 0,
            names: Vec::new(),
            began: std::time::Instant::now(),
            seen: None,
            looks: Rng::new(seed ^ 0xA5A5),
        };
        world.set_clock(EPOCH_US)?;
        Ok(world)
    }

    /// Sets the server's clock, µs.
    pub fn set_clock(&mut self, us: u64) -> Verdict {
        self.note(|| format!("clock {} ({:+} µs)", us, i128::from(us) - i128::from(EPOCH_US)));
        let key = self.host.base.key("clock");
        self.host.ask(&["SET", &key, &us.to_string()])?;
        self.r.set_now(us);
        Ok(())
    }

    pub fn add_worker(&mut self, agents: u8, lone: bool) -> usize {
        let n = self.r.fleet.workers.len();
        let id: WorkerId = format!("w{n}.x").parse().expect("a worker's name");
        self.names.push(id.clone());
        self.r.fleet.workers.push(Worker::new(id, agents, lone));
        n
    }

    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if self.watch.trace {
            let line = what();
            self.trace.push(line);
        }
    }

    /// A command of the test's own, on a key of the shard.
    pub fn raw(&mut self, command: &[&str], tail: &str, args: &[&str]) -> Result<Reply, Violation> {
        self.seen = None;
        let key = self.host.base.key(tail);
        let all: Vec<&str> = command.iter().copied().chain([key.as_str()]).chain(args.iter().copied()).collect();
        self.host.ask(&all)
    }

    /// Makes a call and judges its answer.
    pub fn call(&mut self, call: &Call) -> Result<Answer, Violation> {
        if let Some(mut broken) = self.broken.take() {
            let answer = self.make(call);
            self.note(|| format!("{call}\n      -> {}", shown(&answer)));
            let verdict = broken.learn(&mut self.r, call, &answer);
            self.broken = Some(broken);
            return verdict.map(|()| answer);
        }
        let check = self.looks.percent(self.watch.checks);
        if check && self.seen.is_none() {
            self.look()?;
        }
        let answer = self.make(call);
        self.note(|| format!("{call}\n      -> {}", shown(&answer)));
        judge(&mut self.r, call, &answer, self.host)?;
        let before = self.seen.take();
        if let Some(before) = before.filter(|_| check) {
            self.look()?;
            if let Some(after) = &self.seen {
                pair::check(&self.r, call.script(), &before, after)?;
            }
        }
        Ok(answer)
    }

    /// Makes a call, and no more.
    pub fn make(&mut self, call: &Call) -> Answer {
        self.calls += 1;
        let store = &self.host.stores[usize::from(self.style.tiny)];
        self.host.runtime.block_on(async {
            let patience = Duration::from_millis(SCRIPT_MS * 2);
            let late = Answer::Failed(format!("no answer within {patience:?}"));
            tokio::time::timeout(patience, call.make(store, &self.names)).await.unwrap_or(late)
        })
    }

    /// Compares the whole.
    pub fn look(&mut self) -> Verdict {
        self.checked += 1;
        let snapshot = Snapshot::read(&mut self.host.conn, &self.host.base)?;
        self.r.slack = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0) + 1_000;
        let places = whole::check(&self.r, &snapshot)?;
        self.seen = Some(Instant { snapshot, places });
        Ok(())
    }

    /// A command of the test's own, as bytes.
    pub fn bytes(&mut self, args: &[&[u8]]) -> Result<Reply, Violation> {
        self.seen = None;
        self.host.conn.command(args).map_err(|e| Violation(format!("no reply: {e}")))
    }

    /// The name of a key below the base.
    pub fn key(&self, tail: &str) -> String {
        self.host.base.key(tail)
    }

    /// All keys, unchecked.
    pub fn snapshot(&mut self) -> Result<Snapshot, Violation> {
        Snapshot::read(&mut self.host.conn, &self.host.base)
    }

    /// Lets so many ms pass for all TTLs; what is left with less than 5 s is gone.
    pub fn age(&mut self, ms: u64) -> Verdict {
        const AGE: &str = r"
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    left = left - tonumber(ARGV[1])
    if left <= 5000 then redis.call('DEL', key) else redis.call('PEXPIRE', key, string.format('%.0f', left)) end
  end
end";
        self.seen = None;
        let reply = self.host.ask(&["EVAL", AGE, "0", &ms.to_string()])?;
        if let Some(error) = reply.as_error() {
            return Err(Violation(format!("ageing failed: {error}")));
        }
        self.r.age += ms;
        self.r.woken.clear();
        Ok(())
    }
}

fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Claimed(c) => {
            let all: Vec<_> =
                c.deliveries.iter().map(|d| format!("{} f{} a{} l{}", d.id, d.fence.0, d.attempt, d.losses)).collect();
            format!("claimed [{}] due {} lone {} cut {}", all.join(", "), c.next_due_ms, c.lone_work, c.cut_short)
        }
        other => format!("{other:?}"),
    }
}
