//! A whole shard at one instant, read by one script: where each task is, and what else there is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidemill_common::keys::{Base, KeyKind, kind_of};
use tidemill_embedded::{Connection, Reply, Server};

/// Only reads. Of a string it takes the first 64 bytes: an envelope's generation, the owner of an idempotency key.
const DUMP: &str = r"
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind, v = redis.call('TYPE', key).ok, nil
  if kind == 'string' then v = redis.call('GETRANGE', key, 0, 63)
  elseif kind == 'hash' then v = redis.call('HGETALL', key)
  elseif kind == 'zset' then v = redis.call('ZRANGE', key, 0, -1)
  elseif kind == 'set' then v = redis.call('SMEMBERS', key)
  elseif kind == 'list' then v = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'stream' and key ~= ARGV[1] .. 'log' then
    v = { redis.call('XRANGE', key, '-', '+'), redis.call('XINFO', 'GROUPS', key), {}, {} }
    if #v[2] > 0 then
      v[3] = redis.call('XPENDING', key, 'w', '-', '+', 1000000)
      v[4] = redis.call('XINFO', 'CONSUMERS', key, 'w')
    end
  end
  out[#out + 1] = { key, kind, redis.call('PTTL', key), v }
end
return out";

/// Hundreds of thousands of keys take seconds, on a busy machine.
const ANSWER: Duration = Duration::from_secs(60);

/// One key.
#[derive(Debug, Clone)]
pub struct Key {
    /// Its kind; none: `keys.rs` knows of none.
    pub kind: Option<&'static KeyKind>,
    /// Its Redis type.
    pub of_type: String,
    /// ms it still has; -1: no end.
    pub ttl: i64,
    /// The first bytes of a string.
    pub head: Vec<u8>,
}

/// A stream and its group.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// What nobody has read: generation and id.
    pub unread: Vec<(Vec<u8>, String)>,
    /// What was read and is still there.
    pub read: BTreeSet<String>,
    /// Entries handed over, and to whom.
    pub pending: BTreeMap<String, String>,
    /// The group's consumers.
    pub consumers: Vec<String>,
}

/// A running delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its pending entry.
    pub entry: String,
    /// Who runs it.
    pub worker: String,
}

/// Everything below the base; names are those of `keys.rs`.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Every key.
    pub keys: BTreeMap<String, Key>,
    /// Streams but the log.
    pub streams: BTreeMap<String, Stream>,
    /// Members of sets, sorted sets (lowest first) and lists, fields of hashes.
    pub members: BTreeMap<String, Vec<String>>,
    /// Values of hashes.
    pub hashes: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// What runs.
    pub rows: BTreeMap<String, Row>,
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Int(n) => n.to_string(),
        other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
    }
}

fn entry(id: &str) -> (u64, u64) {
    let (ms, n) = id.split_once('-').unwrap_or((id, "0"));
    (ms.parse().unwrap_or(0), n.parse().unwrap_or(0))
}

impl Snapshot {
    pub(super) fn read(server: &Server, base: &Base) -> Self {
        let prefix = base.key("");
        let connection = Connection::open(server.socket_path(), ANSWER);
        let reply = connection.and_then(|mut connection| connection.command(&["EVAL", DUMP, "0", &prefix]));
        let reply = reply.unwrap_or_else(|e| panic!("no snapshot: {e}"));
        let Some(keys) = reply.as_array() else { panic!("no snapshot: {reply:?}") };
        let mut all = Self::default();
        for key in keys {
            let Some([name, of_type, ttl, value]) = key.as_array() else { continue };
            let name = text(name);
            let tail = name.strip_prefix(&prefix).unwrap_or(&name);
            let of_type = text(of_type);
            let head = if of_type == "string" { value.as_bytes().unwrap_or_default().to_vec() } else { Vec::new() };
            all.fill(tail, &of_type, value);
            all.keys
                .insert(tail.to_owned(), Key { kind: kind_of(tail), of_type, ttl: ttl.as_int().unwrap_or(-2), head });
        }
        all
    }

    fn fill(&mut self, tail: &str, of_type: &str, value: &Reply) {
        let items = value.as_array().unwrap_or_default();
        match of_type {
            "stream" if tail != "log" && tail != "books" => {
                self.streams.insert(
                    tail.to_owned(),
                    stream(items).unwrap_or_else(|| panic!("{tail} cannot be read: {value:?}")),
                );
            }
            "hash" => {
                let fields = items.chunks(2).map(|c| (text(&c[0]), c[1].as_bytes().unwrap_or_default().to_vec()));
                let fields: BTreeMap<String, Vec<u8>> = fields.collect();
                if tail == "run" {
                    for (id, bytes) in &fields {
                        self.rows
                            .insert(id.clone(), row(bytes).unwrap_or_else(|| panic!("the row of {id} cannot be read")));
                    }
                }
                self.members.insert(tail.to_owned(), fields.keys().cloned().collect());
                self.hashes.insert(tail.to_owned(), fields);
            }
            "zset" | "set" | "list" => {
                self.members.insert(tail.to_owned(), items.iter().map(text).collect());
            }
            _ => {}
        }
    }

    /// The members, or fields, of a key; none if it is not there.
    #[must_use]
    pub fn of(&self, tail: &str) -> &[String] {
        self.members.get(tail).map_or(&[], Vec::as_slice)
    }

    /// The generation of a task that has an envelope.
    #[must_use]
    pub fn generation(&self, id: &str) -> Option<&[u8]> {
        let head = &self.keys.get(&format!("j:{id}"))?.head;
        // An outcome begins with a letter.
        head.get(1..5).filter(|_| !head[0].is_ascii_lowercase())
    }

    /// Whether a task has ended, by its outcome record.
    #[must_use]
    pub fn has_outcome(&self, id: &str) -> bool {
        self.keys.get(&format!("j:{id}")).is_some_and(|key| key.head.first().is_some_and(u8::is_ascii_lowercase))
    }

    /// All places of each task.
    #[must_use]
    pub fn places(&self) -> BTreeMap<&str, Vec<String>> {
        let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut add = |id, place: &str| places.entry(id).or_default().push(place.to_owned());
        for (tail, stream) in &self.streams {
            // An entry of another generation is a ghost.
            for (_, id) in stream.unread.iter().filter(|(generation, id)| self.generation(id) == Some(generation)) {
                add(id, tail);
            }
        }
        for (tail, members) in &self.members {
            // The head of an order key is elsewhere.
            let skip = usize::from(tail.starts_with("o:"));
            if matches!(tail.as_str(), "z" | "dead" | "run") || tail.starts_with("l:") || tail.starts_with("o:") {
                members.iter().skip(skip).for_each(|id| add(id, tail));
            }
        }
        places
    }

    /// What is wrong with the places: no task may be in two, none in no place, none without an envelope.
    #[must_use]
    pub fn misplaced(&self) -> Vec<String> {
        let (places, mut wrong) = (self.places(), Vec::new());
        for (id, at) in &places {
            if at.len() > 1 {
                wrong.push(format!("{id} is in more than one place: {at:?}"));
            } else if self.generation(id).is_none() {
                wrong.push(format!("{id} is in {at:?} and has no envelope"));
            }
        }
        for id in self.keys.keys().filter_map(|tail| tail.strip_prefix("j:")) {
            if self.generation(id).is_some() && !places.contains_key(id) {
                wrong.push(format!("{id} has an envelope and is in no place"));
            }
        }
        wrong
    }
}

fn stream(value: &[Reply]) -> Option<Stream> {
    let [entries, groups, pending, consumers] = value else { return None };
    let field = |of: &Reply, name: &str| {
        let fields = of.as_array()?;
        fields.chunks(2).find(|c| text(&c[0]) == name).map(|c| text(&c[1]))
    };
    let mut out = Stream::default();
    let last = groups.as_array()?.first().and_then(|group| field(group, "last-delivered-id")).unwrap_or_default();
    for one in entries.as_array()? {
        let [id, fields] = one.as_array()? else { return None };
        let (id, fields) = (text(id), fields.as_array()?);
        if entry(&id) > entry(&last) {
            out.unread.push((fields.first()?.as_bytes()?.to_vec(), text(fields.get(1)?)));
        } else {
            out.read.insert(id);
        }
    }
    for one in pending.as_array()? {
        let one = one.as_array()?;
        out.pending.insert(text(one.first()?), text(one.get(1)?));
    }
    out.consumers = consumers.as_array()?.iter().filter_map(|consumer| field(consumer, "name")).collect();
    Some(out)
}

/// `docs/wire.md`: 24 bytes of numbers, then entry, queue, agent and worker, each after its length.
fn row(bytes: &[u8]) -> Option<Row> {
    let mut rest = bytes.get(24..)?;
    let mut texts = Vec::new();
    for _ in 0..4 {
        let (len, after) = rest.split_first()?;
        let (one, after) = after.split_at_checked(usize::from(*len))?;
        texts.push(String::from_utf8_lossy(one).into_owned());
        rest = after;
    }
    Some(Row { worker: texts.pop()?, entry: texts.swap_remove(0) })
}
