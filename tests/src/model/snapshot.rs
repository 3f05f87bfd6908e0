//! All of a shard, read by one script at one instant.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_common::keys::{Base, KeyKind, Lifetime, kind_of};
use tidemill_embedded::{Connection, Reply};

use super::Violation;
use super::wire::{self, At, Envelope, Outcome, Row, Slots};

/// Reads, and only reads: every key with its type, its TTL and its content.
const DUMP: &str = r"
local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, v = redis.call('TYPE', key).ok, nil
  if kind == 'string' then v = redis.call('GET', key)
  elseif kind == 'hash' then v = redis.call('HGETALL', key)
  elseif kind == 'zset' then v = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'set' then v = redis.call('SMEMBERS', key)
  elseif kind == 'list' then v = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'stream' then
    v = { redis.call('XRANGE', key, '-', '+'), redis.call('XINFO', 'GROUPS', key), {}, {} }
    if #v[2] > 0 then
      v[3] = redis.call('XPENDING', key, 'w', '-', '+', 100000)
      v[4] = redis.call('XINFO', 'CONSUMERS', key, 'w')
    end
  end
  out[#out + 1] = { key, kind, redis.call('PTTL', key), v }
end
return out";

/// Streams without a group: nobody takes tasks from them.
pub const KEPT_FOR_PEOPLE: [&str; 2] = ["log", "books"];

/// A stream and its group.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    pub last: (u64, u64),
    /// Entry, and what it says: the generation in four bytes, then the id.
    pub entries: BTreeMap<(u64, u64), Vec<u8>>,
    pub pending: BTreeMap<(u64, u64), String>,
    pub consumers: Vec<String>,
}

/// One key.
#[derive(Debug, Clone)]
pub struct Key {
    pub kind: &'static KeyKind,
    pub of_type: String,
    pub ttl: i64,
}

/// Everything.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub keys: BTreeMap<String, Key>,
    pub envelopes: BTreeMap<String, (Envelope, Vec<u8>)>,
    pub outcomes: BTreeMap<String, (Outcome, i64)>,
    pub streams: BTreeMap<String, Stream>,
    pub rows: BTreeMap<String, Row>,
    pub at: BTreeMap<String, At>,
    pub zsets: BTreeMap<String, Vec<(i64, String)>>,
    pub hashes: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    pub sets: BTreeMap<String, BTreeSet<String>>,
    pub lists: BTreeMap<String, Vec<String>>,
    pub strings: BTreeMap<String, Vec<u8>>,
    pub slots: BTreeMap<String, Slots>,
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Int(n) => n.to_string(),
        other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
    }
}

pub fn entry_id(text: &str) -> (u64, u64) {
    let (ms, n) = text.split_once('-').unwrap_or((text, "0"));
    (ms.parse().unwrap_or(0), n.parse().unwrap_or(0))
}

#[expect(clippy::cast_possible_truncation, reason = "scores are whole numbers below 2^53")]
fn score(text: &str) -> i64 {
    text.parse::<f64>().map_or(i64::MIN, |n| n.round() as i64)
}

fn pairs(reply: &Reply) -> impl Iterator<Item = (&Reply, &Reply)> {
    reply.as_array().unwrap_or_default().chunks(2).filter_map(|c| Some((c.first()?, c.get(1)?)))
}

impl Snapshot {
    /// Reads it.
    pub fn read(conn: &mut Connection, base: &Base) -> Result<Self, Violation> {
        let reply =
            conn.command(&["EVAL", DUMP, "0"]).map_err(|e| Violation(format!("the snapshot got no reply: {e}")))?;
        let Some(keys) = reply.as_array() else { return Err(Violation(format!("the snapshot failed: {reply:?}"))) };
        let mut all = Self::default();
        let prefix = base.key("");
        for key in keys {
            let Some([name, of_type, ttl, value]) = key.as_array() else { continue };
            let name = text(name);
            let Some(tail) = name.strip_prefix(&prefix) else {
                return Err(Violation(format!("{name}: not below the base")));
            };
            if tail == "clock" {
                continue;
            }
            let kind = kind_of(tail).ok_or_else(|| Violation(format!("{tail}: of no kind that keys.rs knows")))?;
            let of_type = text(of_type);
            all.fill(tail, &of_type, value, ttl.as_int().unwrap_or(-2))?;
            all.keys.insert(tail.to_owned(), Key { kind, of_type, ttl: ttl.as_int().unwrap_or(-2) });
        }
        Ok(all)
    }

    fn fill(&mut self, tail: &str, of_type: &str, value: &Reply, ttl: i64) -> Result<(), Violation> {
        let bad = |what: &str| Violation(format!("{tail}: {what} cannot be read: {value:?}"));
        match of_type {
            "string" => {
                let bytes = value.as_bytes().unwrap_or_default().to_vec();
                let ended = tail.strip_prefix("j:").filter(|_| bytes.first().is_some_and(u8::is_ascii_lowercase));
                if let Some(id) = ended.or(tail.strip_prefix("r:")) {
                    self.outcomes.insert(id.into(), (wire::outcome(&bytes).ok_or_else(|| bad("outcome"))?, ttl));
                } else if let Some(id) = tail.strip_prefix("j:") {
                    self.envelopes.insert(id.into(), (wire::envelope(&bytes).ok_or_else(|| bad("envelope"))?, bytes));
                } else if let Some(gate) = tail.strip_prefix("g:").filter(|gate| gate.starts_with("s/")) {
                    self.slots.insert(gate.to_owned(), wire::slots(&bytes).ok_or_else(|| bad("slots"))?);
                } else {
                    self.strings.insert(tail.into(), bytes);
                }
            }
            "hash" => self.fill_hash(tail, value).map_err(|what| bad(&what))?,
            "zset" => {
                let members = pairs(value).map(|(m, s)| (score(&text(s)), text(m))).collect();
                self.zsets.insert(tail.into(), members);
            }
            "set" => {
                let members = value.as_array().unwrap_or_default().iter().map(text).collect();
                self.sets.insert(tail.into(), members);
            }
            "list" => {
                let items = value.as_array().unwrap_or_default().iter().map(text).collect();
                self.lists.insert(tail.into(), items);
            }
            _ => {
                self.streams.insert(tail.into(), stream(value).ok_or_else(|| bad("stream"))?);
            }
        }
        Ok(())
    }

    fn fill_hash(&mut self, tail: &str, value: &Reply) -> Result<(), String> {
        let fields = pairs(value).map(|(f, v)| (text(f), v.as_bytes().unwrap_or_default().to_vec()));
        let fields: BTreeMap<String, Vec<u8>> = fields.collect();
        match tail {
            "run" => {
                for (id, bytes) in &fields {
                    self.rows.insert(id.clone(), wire::row(bytes).ok_or(format!("row of {id}"))?);
                }
            }
            "at" => {
                for (id, bytes) in &fields {
                    self.at.insert(id.clone(), wire::at(bytes).ok_or(format!("history of {id}"))?);
                }
            }
            _ => {}
        }
        self.hashes.insert(tail.into(), fields);
        Ok(())
    }

    pub fn zset(&self, tail: &str) -> &[(i64, String)] {
        self.zsets.get(tail).map_or(&[], |v| v)
    }

    /// What is in it, but for payloads: for people.
    pub fn shown(&self) -> Vec<String> {
        let mut lines = vec!["the shard:".to_owned()];
        lines.extend(self.zsets.iter().map(|(tail, v)| format!("{tail}: {v:?}")));
        lines.extend(self.sets.iter().map(|(tail, v)| format!("{tail}: {v:?}")));
        lines.extend(self.lists.iter().map(|(tail, v)| format!("{tail}: {v:?}")));
        lines.extend(self.slots.iter().map(|(gate, v)| format!("g:{gate}: {v:?}")));
        lines.extend(self.rows.iter().map(|(id, v)| format!("run {id}: {v:?}")));
        lines.extend(self.at.iter().map(|(id, v)| format!("at {id}: {v:?}")));
        let plain = self.hashes.iter().filter(|(tail, _)| !["run", "at", "op"].contains(&tail.as_str()));
        for (tail, fields) in plain {
            let all: Vec<String> = fields.iter().map(|(f, v)| format!("{f}={}", String::from_utf8_lossy(v))).collect();
            lines.push(format!("{tail}: {}", all.join(" ")));
        }
        for (tail, stream) in self.streams.iter().filter(|(tail, _)| !KEPT_FOR_PEOPLE.contains(&tail.as_str())) {
            let entries: Vec<String> = stream
                .entries
                .iter()
                .map(|(e, v)| format!("{e:?} {}", String::from_utf8_lossy(v.get(4..).unwrap_or_default())))
                .collect();
            lines.push(format!("{tail}: last {:?} entries {entries:?} pending {:?}", stream.last, stream.pending));
        }
        lines
    }

    /// The keys of one kind of zset, by what follows the stem: lines, order lists.
    pub fn zsets_of<'a>(&'a self, stem: &'a str) -> impl Iterator<Item = (&'a str, &'a [(i64, String)])> {
        self.zsets.iter().filter_map(move |(tail, v)| Some((tail.strip_prefix(stem)?, v.as_slice())))
    }

    pub fn line(&self, gate: &str) -> &[(i64, String)] {
        self.zset(&format!("l:{gate}"))
    }

    pub fn permanent(&self, tail: &str) -> bool {
        self.keys.get(tail).is_some_and(|k| k.kind.2 == Lifetime::Permanent)
    }
}

fn stream(value: &Reply) -> Option<Stream> {
    let [entries, groups, pending, consumers] = value.as_array()? else { return None };
    let mut out = Stream::default();
    for entry in entries.as_array()? {
        let [id, fields] = entry.as_array()? else { return None };
        // The field's name is the generation, its value the id.
        let value: Vec<u8> =
            fields.as_array()?.iter().take(2).flat_map(|f| f.as_bytes().unwrap_or_default().to_vec()).collect();
        out.entries.insert(entry_id(&text(id)), value);
    }
    for group in groups.as_array()? {
        out.last = pairs(group).find(|(k, _)| text(k) == "last-delivered-id").map(|(_, v)| entry_id(&text(v)))?;
    }
    for p in pending.as_array()? {
        let p = p.as_array()?;
        out.pending.insert(entry_id(&text(p.first()?)), text(p.get(1)?));
    }
    for consumer in consumers.as_array()? {
        out.consumers.push(pairs(consumer).find(|(k, _)| text(k) == "name").map(|(_, v)| text(v))?);
    }
    Some(out)
}
