//! Mistakes, put into the scripts one at a time, to see that the model finds them: a check of the check.

use tidemill_common::store::Edit;

use super::plan::Sort;
use super::run::history;
use super::world::Host;

/// One mistake.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// What is wrong then.
    pub name: &'static str,
    edits: &'static [Edit],
}

const fn edit(from: &'static str, to: &'static str) -> Edit {
    Edit { from, to }
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "settle: the fence is not compared",
        edits: &[edit("or not row or string.sub(row, 1, 8) ~= fence then", "or not row then")],
    },
    Mutant {
        name: "settle: the same sequence is done again",
        edits: &[edit("if seq == last then return cmsgpack", "if false then return cmsgpack")],
    },
    Mutant {
        name: "settle: slots are not given back",
        edits: &[edit(
            "  give_back(r.taken, r.start, fence_number(fence), use and verb == 'L', none and NOTHING or use)\n",
            "",
        )],
    },
    Mutant {
        name: "settle: a task twice in a batch is settled twice",
        edits: &[edit("if seen[id] or not row", "if not row")],
    },
    Mutant {
        name: "settle: the entry is not deleted",
        edits: &[edit(
            "call('XACK', key, 'w', unpack(entries)) call('XDEL', key, unpack(entries)) end\nwrite() finish_flush()\nlocal reply",
            "call('XACK', key, 'w', unpack(entries)) end\nwrite() finish_flush()\nlocal reply",
        )],
    },
    Mutant {
        name: "settle: answers of a forgotten worker are kept",
        edits: &[edit("if call('ZSCORE', W, me) then call('HSET', B .. ':op'", "if true then call('HSET', B .. ':op'")],
    },
    Mutant {
        name: "settle: a throttled run counts as an attempt",
        edits: &[edit("if verb == 'R' then t.attempts", "if verb ~= 'L' then t.attempts")],
    },
    Mutant {
        name: "reclaim: slots are not given back",
        edits: &[edit("  give_back_lost(id, r)\n  local t = history", "  local t = history")],
    },
    Mutant {
        name: "reclaim: a living worker is reclaimed",
        edits: &[edit("if score > now then return { 0, 1 } end", "")],
    },
    Mutant {
        name: "reclaim: called-off tasks run again",
        edits: &[edit(
            "if has(r.marks, ROW_CANCEL) then ended.outcome = 'cancelled' finish(id, ended, h) return 'cancelled' end",
            "",
        )],
    },
    Mutant {
        name: "slots: one more than the cap",
        edits: &[edit("if g.used + units > need.cap then", "if g.used >= need.cap then")],
    },
    Mutant {
        name: "rate, ring: one more than the limit",
        edits: &[
            edit("(r.cursor - r.limit + units - 1)", "(r.cursor - r.limit + units - 2)"),
            edit("size = limit, spread = 0 }", "size = limit + 1, spread = 0 }"),
        ],
    },
    Mutant {
        name: "rate, buckets: one more than the limit",
        edits: &[edit("if units <= free then return 0 end", "if units <= free + 1 then return 0 end")],
    },
    Mutant {
        name: "rate: an edit of the book forgets what has passed",
        edits: &[edit("rate_convert(r, rate_events(text, w, cursor, sum), w == window)", "rate_convert(r, {})")],
    },
    Mutant {
        name: "line: overtaken at submit",
        edits: &[edit(
            "if g.head and g.head < h.place and units_of(rules[i], h) > 0 then return join(g, h, id) end",
            "",
        )],
    },
    Mutant {
        name: "line: overtaken at admission",
        edits: &[edit("if g.name ~= own and g.head and g.head < h.place and units > 0 then return g end", "")],
    },
    Mutant {
        name: "line: not marked when its head is called off",
        edits: &[edit("if head then MARKS[name], RING = now, true end", "")],
    },
    Mutant {
        name: "line: not marked when a slot is given back",
        edits: &[edit("if g.head then MARKS[g.name], RING = now, true end", "")],
    },
    Mutant {
        name: "line: a park of this script cannot be taken back",
        edits: &[edit("== 1 or unpark(id) then return end", "== 1 then return end")],
    },
    Mutant {
        name: "reservation: not cleared when its task runs",
        edits: &[edit("      if g.ri == id then g.rp, g.ri, MARKS[g.name], RING = nil, nil, now, true end\n", "")],
    },
    Mutant {
        name: "reservation: not heeded",
        edits: &[edit("if g.rp and g.rp < h.place and g.ri ~= id then return g end", "")],
    },
    Mutant {
        name: "reservation: outlives the book",
        edits: &[edit("for _, gate in ipairs(call('SMEMBERS', B .. ':reserved')) do", "for _, gate in ipairs({}) do")],
    },
    Mutant {
        name: "cancel: a ghost's generation is not compared",
        edits: &[edit("string.sub(env, 2, 5) ~= e[2][1] or ", "")],
    },
    Mutant {
        name: "cancel: the counter is not lowered",
        edits: &[edit("lift(h, id)\ncount(h.waits, -1)", "lift(h, id)")],
    },
    Mutant {
        name: "order key: the next is not released",
        edits: &[edit("== id then order_next(h, id)\n", "== id then call('ZREM', O .. h.order, id)\n")],
    },
    Mutant {
        name: "order key: a dead head does not hold",
        edits: &[edit(
            "if not (t.outcome == 'dead' and has(h.flags, F_HOLD)) then order_ended",
            "if true then order_ended",
        )],
    },
    Mutant { name: "claim: a lost answer is not given again", edits: &[edit("if again then return again end", "")] },
    Mutant {
        name: "claim: one that was cut short is not told so",
        edits: &[edit("(C.looks <= 0 or C.ghosts <= 0) and 1 or 0", "0")],
    },
    Mutant {
        name: "claim: an agent's line wakes nobody by name",
        edits: &[edit("if agent then ring_able(agent, C.me) end", "")],
    },
    Mutant {
        name: "claim: what is lost twice runs beside others",
        edits: &[edit("local SUSPECT = 2", "local SUSPECT = 200")],
    },
    Mutant {
        name: "claim: deadlines are not looked at",
        edits: &[edit("if ends <= now then return over", "if false then return over")],
    },
    Mutant {
        name: "claim: a new earliest due time rings nobody",
        edits: &[edit("if call('ZRANGE', Z, 0, 0)[1] == id then RING = true end", "")],
    },
    Mutant {
        name: "submit: a full queue hides a duplicate",
        edits: &[edit("if call('EXISTS', J .. id) == 1 then return 'd' .. id end", "")],
    },
    Mutant {
        name: "submit: a stream with new entries is not live",
        edits: &[edit("call('ZADD', B .. ':live:' .. prio, 'NX', unpack(f))", "")],
    },
    Mutant {
        name: "submit: sequence numbers go back with the clock",
        edits: &[edit("'0') or 0) + 1, us)\n  call('HSET', N, field", "'0') or 0) * 0, us)\n  call('HSET', N, field")],
    },
    Mutant {
        name: "sweep: leases are not cut when the clock goes back",
        edits: &[edit(
            "for _, w in ipairs(call('ZRANGEBYSCORE', W, num(now + lease)",
            "for _, w in ipairs(call('ZRANGEBYSCORE', W, num(now + 1e15)",
        )],
    },
    Mutant {
        name: "own: only one page",
        edits: &[edit("if cursor then out[1], out[2] = cursor[1], cursor[2] end", "")],
    },
    Mutant {
        name: "leave: a worker that still runs something is forgotten",
        edits: &[edit("if owns then return 0 end", "")],
    },
    Mutant {
        name: "ends: waiters are not told",
        edits: &[edit("call('RPUSH', B .. ':ctl:' .. client, 'end ' .. OVER[i])", "")],
    },
    Mutant {
        name: "ends: an idempotency key lives for ever",
        edits: &[edit(
            "if call('GETRANGE', key_of(h), 0, 63) == string.format('%-64s', id) then call('PEXPIRE'",
            "if false then call('PEXPIRE'",
        )],
    },
    Mutant {
        name: "ends: a key goes with a task that it does not belong to any more",
        edits: &[edit(
            "if call('GETRANGE', key_of(h), 0, 63) == string.format('%-64s', id) then call('PEXPIRE'",
            "if true then call('PEXPIRE'",
        )],
    },
    Mutant {
        name: "dead: a replayed task keeps its attempts",
        edits: &[edit(
            "t.attempts, t.losses, t.lone, t.backs, t.replays = 0, 0, 0, 0, t.replays + 1",
            "t.replays = t.replays + 1",
        )],
    },
    Mutant {
        name: "dead: whether a task is dead is not asked",
        edits: &[edit("if not call('ZSCORE', DEAD, id) then return 'n' end", "if not stored(id) then return 'n' end")],
    },
    Mutant {
        name: "alter: the entry of before counts still",
        edits: &[edit(
            "h.gen, h.waits, h.place = next_gen(h.gen), waits_of",
            "h.gen, h.waits, h.place = h.gen, waits_of",
        )],
    },
    Mutant {
        name: "claim: what is paused is handed over",
        edits: &[edit("if what then return gate('p/' .. what)", "if false then return gate('p/' .. what)")],
    },
    Mutant {
        name: "pause: a resumed queue is not looked at",
        edits: &[edit("or { queue }) do wake_streams(q) end", "or { queue }) do end")],
    },
    Mutant {
        name: "replace: the task of the key runs with the old content as well",
        edits: &[edit("next_gen(was.gen), delay, ttl", "was.gen, delay, ttl")],
    },
    Mutant {
        name: "budget: what was not used is not given back",
        edits: &[edit("local off = math.min(has_, -more)", "local off = 0")],
    },
    Mutant {
        name: "budget: what was used beyond is forgotten",
        edits: &[edit("        w.debt = w.debt + more\n", "")],
    },
    Mutant {
        name: "budget: one that stays charged of a lost run is given back",
        edits: &[edit(
            "elseif t.loss == 'C' then used = math.max(t.units, known or 0)",
            "elseif t.loss == 'C' then used = known or 0",
        )],
    },
    Mutant {
        name: "budget: what a lost run says later counts twice",
        edits: &[edit("spent({ t = use.t - tokens, c = use.c - money })", "spent(use)")],
    },
    Mutant {
        name: "budget: what a run said before it was lost is not counted",
        edits: &[edit("    spent(use)\n  end\n  if said", "  end\n  if said")],
    },
    Mutant {
        name: "budget: what has been given back wakes nobody",
        edits: &[edit("if used < charged and g.head then MARKS[name], RING = now, true end", "")],
    },
];

/// Whether a mistake was found, and by which history.
#[derive(Debug)]
pub struct Found {
    /// How many histories it took.
    pub after: u64,
    /// What the model said.
    pub why: String,
}

/// Runs histories with one mistake in the scripts until the model finds it, at most so many.
#[must_use]
pub fn find(mutant: &Mutant, from: u64, most: u64, checks: u64) -> Option<Found> {
    let mut host = Host::start(mutant.edits);
    for n in 0..most {
        if let Err(failure) = history(&mut host, Sort::Strict, from + n, checks, false) {
            return Some(Found { after: n + 1, why: failure.why });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::MUTANTS;

    #[test]
    fn every_mistake_has_a_place_in_the_scripts() {
        let texts = tidemill_common::store::all_texts();
        for mutant in MUTANTS {
            for edit in mutant.edits {
                assert!(
                    texts.iter().any(|(_, text)| text.contains(edit.from)),
                    "{}: {:?} is in no script",
                    mutant.name,
                    edit.from
                );
            }
        }
    }
}
