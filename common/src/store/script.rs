//! The scripts: assembled at compile time, named by the digest of their text.
//!
//! EVALSHA, not Functions: builds of different versions live side by side, each with its own text. The first line says `#!lua`, so
//! that a replica refuses before anything ran and a key of another slot is an error. All but `submit` may run when memory is full:
//! a worker must be able to settle what it holds.

use fred::interfaces::LuaInterface;
use fred::prelude::{Client, Value};

use super::error::Error;

/// A script: its name (the edge it is), its text and the text's digest.
#[derive(Debug)]
pub struct Script {
    /// The name of its file.
    pub name: &'static str,
    text: String,
    sha: String,
}

macro_rules! lua {
    ($file:literal) => {
        include_str!(concat!("../../lua/", $file, ".lua"))
    };
}

const PRELUDE: &str = lua!("lib/prelude");
const HEADER: &str = lua!("lib/header");
const HISTORY: &str = lua!("lib/history");
const ROW: &str = lua!("lib/row");
const STATE: &str = lua!("lib/state");
const BUCKETS: &str = lua!("lib/buckets");
const RATE: &str = lua!("lib/rate");
const BOOK: &str = lua!("lib/book");
const BUDGET: &str = lua!("lib/budget");
const GATES: &str = lua!("lib/gates");
const SPEND: &str = lua!("lib/spend");
const RESERVE: &str = lua!("lib/reserve");
const LINES: &str = lua!("lib/lines");
const PLACE: &str = lua!("lib/place");
const RESCUE: &str = lua!("lib/rescue");
const QUEUES: &str = lua!("lib/queues");
const ROOM: &str = lua!("lib/room");
const INTAKE: &str = lua!("lib/intake");
const REPLACE: &str = lua!("lib/replace");
const ACCEPT: &str = lua!("lib/accept");
const DEAD: &str = lua!("lib/dead");
const PAUSES: &str = lua!("lib/pauses");
const FINISH: &str = lua!("lib/finish");
const WHERE: &str = lua!("lib/where");
const PENDING: &str = lua!("lib/pending");
const DELIVER: &str = lua!("lib/deliver");
const SOURCES: &str = lua!("lib/sources");
const TURNS: &str = lua!("lib/turns");
const CLOSE: &str = lua!("lib/close");
const EXPIRE: &str = lua!("lib/expire");
const WORKER: &str = lua!("lib/worker");

/// How scripts read the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// The server's clock, read once a script.
    #[default]
    Server,
    /// A key that a test sets, in µs.
    #[cfg(feature = "test-clock")]
    Key,
}

impl Clock {
    const fn line(self) -> &'static str {
        match self {
            Self::Server => "local T = call('TIME')\nlocal us = T[1] * 1000000 + T[2]",
            #[cfg(feature = "test-clock")]
            Self::Key => "local us = tonumber(call('GET', B .. ':clock'))",
        }
    }
}

/// All scripts, ready to be sent.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) submit: Script,
    pub(super) claim: Script,
    pub(super) settle: Script,
    pub(super) renew: Script,
    pub(super) sweep: Script,
    pub(super) reclaim: Script,
    pub(super) own: Script,
    pub(super) leave: Script,
    pub(super) cancel: Script,
    pub(super) alter: Script,
    pub(super) dead: Script,
    pub(super) scan: Script,
    pub(super) status: Script,
    pub(super) counts: Script,
    pub(super) book: Script,
    pub(super) refresh: Script,
    pub(super) pause: Script,
    pub(super) schedule: Script,
    pub(super) fire: Script,
    pub(super) progress: Script,
    pub(super) spend: Script,
    pub(super) emit: Script,
    pub(super) tune: Script,
    pub(super) workers: Script,
    pub(super) nudge: Script,
    pub(super) repair: Script,
    pub(super) gate: Script,
    pub(super) lines: Script,
}

impl Scripts {
    pub(super) fn assemble(clock: Clock) -> Self {
        // Gates and all they need; what puts a task in its place; what ends one.
        let gates = [HEADER, HISTORY, ROW, STATE, BUCKETS, RATE, BOOK, BUDGET, GATES, SPEND, RESERVE, LINES, PLACE];
        let ends = [&gates[..], &[FINISH]].concat();
        let takes_in = [WHERE, QUEUES, ROOM, INTAKE, REPLACE, ACCEPT];
        let script = |name, oom_ok: bool, libs: &[&str], body: &str| {
            let first = if oom_ok { "#!lua flags=allow-oom" } else { "#!lua" };
            // What moves tasks runs under the rescue.
            let body = if libs.contains(&PLACE) {
                format!("local function main()\n{body}end\n{RESCUE}")
            } else {
                body.to_owned()
            };
            // A function of its own around all but the prelude: what it takes from there it finds once. Inside one function each
            // closure would search the list of all locals that are in use for it, at every call.
            let text = format!(
                "{first}\n{}return (function()\n{}{body}end)()\n",
                PRELUDE.replace("--@clock", clock.line()),
                libs.concat()
            );
            let sha = fred::util::sha1_hash(&text);
            Script { name, text, sha }
        };
        Self {
            submit: script("submit", false, &[&gates[..], &takes_in].concat(), lua!("submit")),
            claim: script(
                "claim",
                true,
                &[&ends[..], &[WHERE, PENDING, PAUSES, DELIVER, SOURCES, TURNS, CLOSE]].concat(),
                lua!("claim"),
            ),
            settle: script("settle", true, &[&ends[..], &takes_in].concat(), lua!("settle")),
            renew: script("renew", true, &[], lua!("renew")),
            sweep: script("sweep", true, &[&ends[..], &[WHERE, DEAD, EXPIRE, PAUSES]].concat(), lua!("sweep")),
            reclaim: script("reclaim", true, &[&ends[..], &[WHERE, PENDING, WORKER]].concat(), lua!("reclaim")),
            own: script("own", true, &[&gates[..], &[WHERE, PENDING]].concat(), lua!("own")),
            leave: script("leave", true, &[&gates[..], &[WHERE, PENDING, WORKER]].concat(), lua!("leave")),
            cancel: script("cancel", true, &[&ends[..], &[WHERE]].concat(), lua!("cancel")),
            alter: script("alter", true, &[&gates[..], &[WHERE, QUEUES]].concat(), lua!("alter")),
            dead: script("dead", true, &[&ends[..], &[DEAD]].concat(), lua!("dead")),
            scan: script("scan", true, &[&ends[..], &[WHERE]].concat(), lua!("scan")),
            status: script("status", true, &[&ends[..], &[WHERE]].concat(), lua!("status")),
            counts: script("counts", true, &[], lua!("counts")),
            book: script("book", true, &[], lua!("book")),
            refresh: script("refresh", true, &gates, lua!("refresh")),
            pause: script("pause", true, &[&gates[..], &[PAUSES]].concat(), lua!("pause")),
            schedule: script("schedule", true, &[], lua!("schedule")),
            fire: script("fire", false, &[&ends[..], &takes_in].concat(), lua!("fire")),
            progress: script("progress", true, &[], lua!("progress")),
            spend: script("spend", true, &gates, lua!("spend")),
            tune: script("tune", true, &[], lua!("tune")),
            workers: script("workers", true, &[], lua!("workers")),
            emit: script("emit", true, &[], lua!("emit")),
            nudge: script("nudge", true, &[], lua!("nudge")),
            repair: script("repair", true, &[], lua!("repair")),
            gate: script("gate", true, &[HEADER, ROW, STATE, BUCKETS, BUDGET], lua!("gate")),
            lines: script("lines", true, &[], lua!("lines")),
        }
    }
}

/// The script that a server names by its SHA-1 (in its SLOWLOG, say), if it is one of ours in this build.
#[must_use]
pub fn script_of(sha: &str) -> Option<&'static str> {
    let mut scripts = Scripts::assemble(Clock::Server);
    scripts.each().into_iter().find(|script| script.sha == sha).map(|script| script.name)
}

/// The whole text of every script, by name, as it is sent: for whoever checks or documents them.
#[must_use]
pub fn all_texts() -> Vec<(&'static str, String)> {
    let mut scripts = Scripts::assemble(Clock::Server);
    scripts.each().into_iter().map(|script| (script.name, std::mem::take(&mut script.text))).collect()
}

impl Scripts {
    fn each(&mut self) -> [&mut Script; 28] {
        let Self {
            submit,
            claim,
            settle,
            renew,
            sweep,
            reclaim,
            own,
            leave,
            cancel,
            alter,
            dead,
            scan,
            status,
            counts,
            book,
            refresh,
            pause,
            schedule,
            fire,
            progress,
            spend,
            emit,
            tune,
            workers,
            nudge,
            repair,
            gate,
            lines,
        } = self;
        [
            submit, claim, settle, renew, sweep, reclaim, own, leave, cancel, alter, dead, scan, status, counts, book,
            refresh, pause, schedule, fire, progress, spend, emit, tune, workers, nudge, repair, gate, lines,
        ]
    }
}

/// A change of the scripts' texts, for tests: smaller bounds, so that they are met; or a mistake, to see that a test finds it.
#[cfg(feature = "test-clock")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced, in every script that has it.
    pub from: &'static str,
    /// What stands there instead.
    pub to: &'static str,
}

#[cfg(feature = "test-clock")]
impl Scripts {
    /// Edits all scripts. Returns the first edit that met no text, so that none is forgotten when a script changes.
    pub(super) fn edit(&mut self, edits: &[Edit]) -> Result<(), Edit> {
        for edit in edits {
            let mut met = false;
            for script in self.each() {
                if script.text.contains(edit.from) {
                    met = true;
                    script.text = script.text.replace(edit.from, edit.to);
                    script.sha = fred::util::sha1_hash(&script.text);
                }
            }
            if !met {
                return Err(*edit);
            }
        }
        Ok(())
    }
}

impl Script {
    /// Runs it once. A server that does not know it is told its text, once; nothing had run before that.
    pub(super) async fn run(&self, client: &Client, base: &str, args: Vec<Value>) -> Result<Value, Error> {
        let first: Result<Value, _> = client.evalsha(self.sha.as_str(), base, args.clone()).await;
        let answer = match first {
            Err(e) if e.details().starts_with("NOSCRIPT") => client.eval(self.text.as_str(), base, args).await,
            other => other,
        };
        answer.map_err(|e| Error::of(self.name, e))
    }
}
