-- settle: running -> succeeded | scheduled (retry, throttled) | queued (release) | dead | cancelled. A batch, each item whole.
-- Sent twice with the same sequence it gives the same answers; a later repeat gets `already` or `stale`.
-- ARGV: worker | lane | sequence | n | (id, fence in 8 bytes, verb, number, data, used, follow-ups)*n | the follow-ups, as accept reads them
--   verbs: D done (number: ms to keep the result) R retry (delay ms) P throttled (delay ms; no attempt) L release (no attempt) X dead (1: it cannot be read)
--   used: '' or `<tokens>:<micro-dollars>`, all that this delivery has used. Not known: what was charged stands; of a throttled one, and
--   of one that was handed back before it started, nothing was used. One that was cut short says what it knows: see give_back.
-- Follow-ups (a handler's outbox) are taken in only with a `done` that counts, so that a repeated run cannot double them.
-- Reply: string of one letter a task, then the replies to the follow-ups taken in.
--   d done r retry t throttled l released x dead c cancelled e expired | a already settled by this delivery s stale g gone ! unreadable
local me, lane, seq, n = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local field = 's:' .. me .. ':' .. lane
local op = call('HGET', B .. ':op', field)
if op then
  local last, o = unpack_('>d', op)
  if seq < last then return redis.error_reply('STALE a later sequence was settled') end
  if seq == last then return cmsgpack.unpack(string.sub(op, o)) end
end
local ids, seen, gone, acks, out, outbox, follow, done = {}, {}, {}, {}, {}, {}, 5 + 7 * n, 0
for i = 1, n do ids[i] = ARGV[7 * i - 2] end
local rows = n > 0 and call('HMGET', RUN, unpack(ids)) or {}
fetch_held(rows)

local NOTHING = { t = 0, c = 0 }
local function used(text)
  if text == '' then return end
  local tokens, money = string.match(text, '^(%d+):(%d+)$')
  return { t = math.min(tonumber(tokens) or 0, UNITS_MAX), c = math.min(tonumber(money) or 0, UNITS_MAX) }
end
local function not_mine(id, fence, row, use)
  if use and #fence == 8 then spent_late(id, fence_number(fence), use, true) end
  local j, r = call('GETRANGE', J .. id, 0, 9), call('GETRANGE', R .. id, 0, 9)
  if (ENDED[string.sub(j, 1, 1)] and string.sub(j, 3) == fence) or string.sub(r, 3) == fence then return 'a' end
  local at = call('HGET', AT, id)
  if at and history(at).fence == fence then return 'a' end
  if row or #j > 0 or #r > 0 then return 's' end
  return 'g'
end

-- everything but a plain success
local function settle_one(id, fence, verb, number, data, row, use)
  local r, h = row_read(row), stored(id)
  if not r then quarantine(id) return '!' end
  local none = not use and (verb == 'L' or verb == 'P' or (verb == 'X' and number == '1'))
  give_back(r.taken, r.start, fence_number(fence), use and verb == 'L', none and NOTHING or use)
  local t = history(call('HGET', AT, id))
  local ended = { attempt = r.attempt, losses = t.losses + t.lone, fence = fence, start = r.start, data = data, agent = r.agent, history = true, ttl = number }
  if verb == 'D' then ended.outcome = 'done' finish(id, ended, h) return 'd' end
  t.fence = fence
  if has(r.marks, ROW_CANCEL) then ended.outcome, ended.ttl = 'cancelled', nil finish(id, ended, h) return 'c' end
  if not h then quarantine(id) return '!' end
  if verb == 'X' or (verb == 'R' and r.attempt >= r.max) then
    t.attempts, ended.outcome, ended.why = r.attempt, 'dead', verb ~= 'X' and ATTEMPTS or number == '1' and INVALID or REJECTED
    note(t, r.attempt, data)
    remember(id, t)
    finish(id, ended, h)
    return 'x'
  end
  if verb == 'R' then t.attempts = r.attempt end
  if verb == 'L' then t.backs = t.backs + 1 else note(t, r.attempt, data) end
  remember(id, t)
  if waits_again(h, id, ended) then return 'e' end
  if verb == 'L' then into_first(h, id) return 'l' end
  schedule(id, now + math.max(1, tonumber(number)))
  return verb == 'R' and 'r' or 't'
end

for i = 1, n do
  local o = 7 * i - 2
  local id, fence, verb, row, use = ids[i], ARGV[o + 1], ARGV[o + 2], rows[i], used(ARGV[o + 5])
  if seen[id] or not row or string.sub(row, 1, 8) ~= fence then out[i] = seen[id] and 'a' or not_mine(id, fence, row, use)
  else
    local ok, start, attempt, _, prio, flags, marks, src, entry, at = pcall(unpack_, ROW_HEAD, row, 9)
    local who = ok and tail_of(row, at, marks)
    seen[id], LEFT[id], gone[#gone + 1] = true, true, id
    if not who then quarantine(id) out[i] = '!'
    else
      local key = src == 'q' and stream_of(who[1], prio) or src == 'f' and FIRST or LINE
      local a = acks[key]
      if not a then a = {} acks[key] = a end
      a[#a + 1] = entry
      if use then spent(use) end
      if verb == 'D' and flags % F_ESTIMATE == 0 and marks % ROW_TAKEN == 0 then
        if marks > 0 then give_back(who[3], start, fence_number(fence), false, use) end
        record(id, 'd', NOT_DEAD, fence, attempt, 0, start, ARGV[o + 4], ARGV[o + 3], who[2])
        done, out[i] = done + 1, 'd'
      else out[i] = settle_one(id, fence, verb, ARGV[o + 3], ARGV[o + 4], row, use) end
    end
  end
  local follows = ARGV[o + 6]
  if follows ~= '0' then
    if out[i] == 'd' then for _, reply in ipairs(accept(follow, tonumber(follows), 0)) do outbox[#outbox + 1] = reply end end
    follow = follow + tonumber(follows) * ITEM
  end
end
count('o:done', done)
TAKEN = {}                                                         -- from here on a repeat finds the deliveries settled
if #gone > 0 then
  call('HDEL', RUN, unpack(gone))
  if call('EXISTS', USED) == 1 then call('HDEL', USED, unpack(gone)) end
end
for key, entries in pairs(acks) do call('XACK', key, 'w', unpack(entries)) call('XDEL', key, unpack(entries)) end
write() finish_flush()
local reply = { table.concat(out), outbox }
-- nothing is kept of a worker that is forgotten: none of its deliveries is current, so that a repeat changes nothing
if call('ZSCORE', W, me) then call('HSET', B .. ':op', field, pack('>d', seq) .. cmsgpack.pack(reply)) end
ring()
return reply
