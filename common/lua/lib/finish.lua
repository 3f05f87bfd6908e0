-- finish: the end of a task. Its outcome record takes the place of its envelope, for a while; what belonged to it goes; whoever
-- waits is woken; the next of its order key goes to its place. A dead task keeps its envelope and history until it is replayed
-- or dropped, and has its outcome beside them.
--   outcome: letter | why a dead one is | 8 bytes fence | u16 attempt | u16 losses | f64 start ms | f64 end ms, 30 bytes, then the
--   result, or for people why it did not succeed
local ENDS, OVER = {}, {}                                          -- log parts by agent; ids that have ended
local LOG_MAX, OUTCOME_FMT, OUTCOME_BYTES = 1000, '>c1c1c8HHdd', 30
local LETTER = { done = 'd', dead = 'x', cancelled = 'c', expired = 'e' }
-- why a task is dead: attempts used up | rejected by its handler | invalid | poison | never fits | no worker knows its agent | '-': another end
local ATTEMPTS, REJECTED, INVALID, POISON, NEVER_FITS, UNKNOWN_AGENT, NOT_DEAD = 'a', 'r', 'i', 'p', 'n', 'u', '-'
local RESEND_MS, KEY_MS, DEAD_MS = 120000, 86400000, '7776000000'
local TTLS = {}                                                    -- lifetimes asked for, at least the re-send window

local function record(id, letter, why, fence, attempt, losses, start, data, ttl, agent)
  if not TTLS[ttl] then TTLS[ttl] = num(math.max(tonumber(ttl) or 0, RESEND_MS)) end
  local outcome = pack(OUTCOME_FMT, letter, why, fence, attempt, losses, start, now)
  call('SET', (letter == 'x' and R or J) .. id, outcome .. data, 'PX', TTLS[ttl])
  OVER[#OVER + 1] = id
  local ends = ENDS[agent]
  if not ends then ends = {} ENDS[agent] = ends end
  local o = #ends
  ends[o + 1], ends[o + 2], ends[o + 3] = outcome, id, '\n'
end

-- The idempotency key goes some time after its task, unless a later task has it.
local function key_ended(h, id)
  if call('GETRANGE', key_of(h), 0, 63) == string.format('%-64s', id) then call('PEXPIRE', key_of(h), num(KEY_MS)) end
end

-- end of `id`. t: outcome, why, attempt, losses, fence, start, data, ttl (ms), agent, history. h: its header.
local function finish(id, t, h)
  record(id, LETTER[t.outcome], t.why or NOT_DEAD, t.fence, t.attempt, math.min(t.losses, 65535), t.start, t.data or '',
    t.outcome == 'dead' and DEAD_MS or t.ttl or RESEND_MS, t.agent)
  count('o:' .. t.outcome, 1)
  if h and t.outcome ~= 'dead' then
    if has(h.flags, F_BIG) then call('DEL', B .. ':b:' .. id) end
    if h.key ~= '' then key_ended(h, id) end
  end
  if t.outcome == 'dead' then
    call('ZADD', DEAD, num(now), id)
    count('d:' .. t.why, 1)
  elseif t.history then call('HDEL', AT, id) end
  if not h then return end
  if h.exp > 0 then call('ZREM', X, id) end
  if not (t.outcome == 'dead' and has(h.flags, F_HOLD)) then order_ended(h, id) end
end

-- Whoever waits for one of the ended tasks gets its id on its own list.
local function wake_waiters()
  if #OVER == 0 or call('EXISTS', B .. ':waits') == 0 then return end
  for i, who in ipairs(call('HMGET', B .. ':waits', unpack(OVER))) do
    if who then
      for client in string.gmatch(who, '[^,]+') do
        call('RPUSH', B .. ':ctl:' .. client, 'end ' .. OVER[i])
        call('PEXPIRE', B .. ':ctl:' .. client, RESEND_MS)
      end
      call('HDEL', B .. ':waits', OVER[i])
    end
  end
end
local function finish_flush()
  if next(ENDS) then                                               -- one entry a batch: a field an agent, (outcome, id, newline)*
    local entry = { 'XADD', B .. ':log', 'MAXLEN', '~', LOG_MAX, '*' }
    for agent, parts in pairs(ENDS) do entry[#entry + 1], entry[#entry + 2] = agent, table.concat(parts) end
    call(unpack(entry))
  end
  wake_waiters()
end
local function log_event(kind, text) call('XADD', B .. ':log', 'MAXLEN', '~', LOG_MAX, '*', '!' .. kind, text) end

-- A task that ran is to wait again; true: it has become too old for that, and has expired.
local function waits_again(h, id, ended)
  local old = too_old(h)
  if old > 0 and old <= now then
    ended.outcome, ended.ttl = 'expired', nil
    finish(id, ended, h)
    return true
  end
  if old > 0 then call('ZADD', X, num(old), id) end
  count(h.waits, 1)
end

-- A running delivery that nobody will settle: lost with its worker. Its gates are given back; it goes first, or alone, or is dead.
local function lose(id, row, poison_after)
  local r = row_read(row)
  give_back_lost(id, r)
  local t = history(call('HGET', AT, id))
  t.fence = r.fence
  local h = stored(id)
  if has(r.marks, ROW_LONE) then t.lone = t.lone + 1 else t.losses = t.losses + 1 end
  local ended = { attempt = r.attempt, losses = t.losses + t.lone, fence = t.fence, start = r.start, agent = r.agent, history = true }
  if has(r.marks, ROW_CANCEL) then ended.outcome = 'cancelled' finish(id, ended, h) return 'cancelled' end
  local text = 'worker lost ' .. ended.losses .. ' times'
  note(t, r.attempt, text)
  if not h then quarantine(id) return 'invalid' end
  remember(id, t)
  if t.lone >= poison_after then
    ended.outcome, ended.why, ended.data = 'dead', POISON, 'poison: ' .. text
    finish(id, ended, h)
    return 'dead'
  end
  if waits_again(h, id, ended) then return 'expired' end
  into_first(h, id)
  return 'first'
end
