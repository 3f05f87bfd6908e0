//! What `producer doctor` makes of what the server says of itself: will what is in still be in tomorrow?

use tidemill_common::store::{Pause, ServerFacts};

use super::doctor::{Check, Verdict, check};
use super::output::{one_line, printable};
use super::pause;

/// Above so much of its bound, memory is soon used up; above so much it is.
const MEMORY_CARE_PERCENT: u64 = 80;
const MEMORY_FULL_PERCENT: u64 = 98;
/// Pauses that a text lists.
const LISTED: usize = 5;

const KEEP: &str =
    "set `appendonly yes` and `appendfsync everysec`, or tasks that were taken in are lost when it restarts";

/// All checks of the server itself.
pub(crate) fn checks(facts: &ServerFacts, pauses: &[Pause], now_ms: u64) -> Vec<Check> {
    vec![persistence(facts), last_save(facts), memory(facts), role(facts), paused(pauses, now_ms)]
}

fn persistence(facts: &ServerFacts) -> Check {
    let snapshots = facts.save.as_deref().filter(|save| !save.is_empty());
    let found = |verdict, text: String| check("persistence", verdict, text);
    match (facts.appendonly, facts.appendfsync.as_deref()) {
        (Some(true), Some("no")) => {
            let text = "an append-only file, which reaches the disk when the system likes (appendfsync no)";
            found(Verdict::Warn, text.to_owned()).advise("set `appendfsync everysec`, or `always`")
        }
        (Some(true), fsync) => {
            let fsync = fsync.map_or_else(String::new, |fsync| format!(" (appendfsync {})", printable(fsync)));
            found(Verdict::Ok, format!("an append-only file{fsync}"))
        }
        (Some(false), _) => match (snapshots, &facts.save) {
            (Some(save), _) => {
                let text = format!(
                    "snapshots alone (save {}): what came after the last is lost when it crashes",
                    printable(save)
                );
                found(Verdict::Warn, text).advise(KEEP)
            }
            (None, None) => {
                found(Verdict::Warn, "no append-only file; whether there are snapshots it does not tell".to_owned())
                    .advise(KEEP)
            }
            (None, Some(_)) => {
                found(Verdict::Warn, "none: neither an append-only file nor snapshots".to_owned()).advise(KEEP)
            }
        },
        (None, _) => found(Verdict::Ok, "the server does not tell".to_owned()),
    }
}

fn last_save(facts: &ServerFacts) -> Check {
    if facts.last_save_failed {
        check(
            "last save",
            Verdict::Bad,
            "the last snapshot failed, and with its default settings it refuses writes then",
        )
        .advise("see its log: the disk is full, or it may not write there; or there is no memory to fork")
    } else {
        check("last save", Verdict::Ok, "no snapshot has failed")
    }
}

/// Bytes for people.
fn bytes(n: u64) -> String {
    match n {
        0..1_024 => format!("{n} B"),
        1_024..1_048_576 => format!("{} KiB", n >> 10),
        1_048_576..10_737_418_240 => format!("{} MiB", n >> 20),
        _ => format!("{} GiB", n >> 30),
    }
}

fn memory(facts: &ServerFacts) -> Check {
    let found = |verdict, text: String| check("memory", verdict, text);
    let used = facts.used_memory.map_or_else(|| "an unknown amount".to_owned(), bytes);
    let Some(most) = facts.maxmemory else {
        return found(Verdict::Ok, format!("{used} in use; its bound it does not tell"));
    };
    if most == 0 {
        return found(Verdict::Warn, format!("{used} in use, and no bound (maxmemory 0)"))
            .advise("set `maxmemory` below what the machine has: then what is new is refused, and nothing is killed");
    }
    let percent = facts.used_memory.unwrap_or(0).saturating_mul(100) / most;
    let text = format!("{used} in use, {percent} % of its bound of {}", bytes(most));
    let advice = "give it more; keep fewer results (`--result none`); `producer dead purge`";
    match percent {
        MEMORY_FULL_PERCENT.. => found(Verdict::Bad, format!("{text}: what is new is refused")).advise(advice),
        MEMORY_CARE_PERCENT.. => found(Verdict::Warn, text).advise(advice),
        _ => found(Verdict::Ok, text),
    }
}

fn role(facts: &ServerFacts) -> Check {
    let replicas = facts.replicas.unwrap_or(0);
    match facts.role.as_deref() {
        Some("master") => {
            let text = match replicas {
                0 => "primary, without replicas".to_owned(),
                1 => "primary, with 1 replica".to_owned(),
                n => format!("primary, with {n} replicas"),
            };
            check("role", Verdict::Ok, text)
        }
        Some("slave") => check("role", Verdict::Bad, "a replica, which refuses writes")
            .advise("give the address of the primary, or one that follows it"),
        _ => check("role", Verdict::Ok, "the server does not tell"),
    }
}

fn paused(pauses: &[Pause], now_ms: u64) -> Check {
    if pauses.is_empty() {
        return check("pauses", Verdict::Ok, "nothing is paused");
    }
    let one =
        |held: &Pause| format!("{} {}", one_line(&printable(&held.what.to_string())), pause::how_long(held, now_ms));
    let mut all: Vec<String> = pauses.iter().take(LISTED).map(one).collect();
    if pauses.len() > LISTED {
        all.push(format!("and {} more", pauses.len() - LISTED));
    }
    check("pauses", Verdict::Ok, format!("paused: {}", all.join(", ")))
        .advise("`producer pause --list` says why; `producer resume` lets it go on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_lost_is_told() {
        let facts = |appendonly, fsync: Option<&str>, save: Option<&str>| ServerFacts {
            appendonly,
            appendfsync: fsync.map(str::to_owned),
            save: save.map(str::to_owned),
            ..ServerFacts::default()
        };
        for (facts, verdict) in [
            (facts(Some(true), Some("everysec"), Some("")), Verdict::Ok),
            (facts(Some(true), Some("no"), Some("")), Verdict::Warn),
            (facts(Some(true), None, None), Verdict::Ok),
            (facts(Some(false), None, Some("3600 1")), Verdict::Warn),
            (facts(Some(false), None, Some("")), Verdict::Warn),
            (facts(None, None, None), Verdict::Ok),
        ] {
            assert_eq!(persistence(&facts).verdict, verdict, "{facts:?}");
        }
        assert_eq!(last_save(&ServerFacts { last_save_failed: true, ..ServerFacts::default() }).verdict, Verdict::Bad);
    }

    #[test]
    fn memory_and_role_are_judged() {
        let memory = |most, used| {
            memory(&ServerFacts { maxmemory: Some(most), used_memory: Some(used), ..ServerFacts::default() }).verdict
        };
        assert_eq!((memory(0, 1), memory(100, 50)), (Verdict::Warn, Verdict::Ok));
        assert_eq!((memory(100, 80), memory(100, 99)), (Verdict::Warn, Verdict::Bad));
        let role = |role: &str| role_of(role).verdict;
        assert_eq!((role("master"), role("slave")), (Verdict::Ok, Verdict::Bad));
        assert_eq!((bytes(5), bytes(3 << 20), bytes(64 << 30)), ("5 B".into(), "3 MiB".into(), "64 GiB".into()));
    }

    fn role_of(name: &str) -> Check {
        role(&ServerFacts { role: Some(name.to_owned()), ..ServerFacts::default() })
    }
}
