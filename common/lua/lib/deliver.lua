-- deliver: what a claim does with one task: admit, park, expire, put aside. All but the stream reads (and the entries of tasks
-- pulled from lines) is written when the claim closes, so that an error before leaves entries pending without a row; their
-- owner or the sweep puts those back.
local C                                                            -- the claim in hand
local drop, info_of, claim_open, consider
do
local SUSPECT = 2                                                  -- losses after which a task runs alone
local INFO = {}                                                    -- header bytes -> what they say, and the rules: read once a claim

function claim_open(me, most, rooms, lone, reads)
  -- mostly there is none of these: one look says so
  local odd = call('EXISTS', AT, B .. ':wants', PAUSED, unpack(READY)) > 0
  FENCE = math.max((tonumber(call('HGET', N, 'fence') or '0') or 0) + 1, us)
  C = { me = me, most = most, rooms = rooms, lone = lone, reads = reads, n = 0, looks = most + math.min(most + 16, 64), ghosts = 256, fence = FENCE, acks = {},
    run = {}, ids = {}, out = { 'ok', now, 0, 0, 0 }, pulled = {}, waits = {}, blocked = {}, nblocked = 0, odd = odd, ats = odd and call('EXISTS', AT) == 1,
    held = odd and call('EXISTS', PAUSED) == 1 and next(pauses()) and true }
end
function drop(key, entry) local a = C.acks[key] or {} a[#a + 1] = entry C.acks[key] = a end

function info_of(env, bytes)
  local head = string.sub(env, SEALED_BYTES + 1, SEALED_BYTES + bytes)
  local info = INFO[head]
  if not info then
    info = header(env)
    if not info then return end
    info.rules, info.tail = book_gates(info), row_tail(info.queue, info.agent, C.me)
    INFO[head] = info
  end
  return info
end

local function over(id, env, outcome, data, own)                   -- it will not run: expired, or never fits
  local h = header(env)
  local t = history(call('HGET', AT, id))
  if own then unreserve(book_gates(h), id) end
  count(h.waits, -1)
  if outcome == 'dead' then note(t, t.attempts, data) remember(id, t) end
  finish(id, { outcome = outcome, why = outcome == 'dead' and NEVER_FITS, losses = t.losses + t.lone, attempt = t.attempts, fence = t.fence, start = 0, data = data, agent = h.agent, history = true }, h)
  return true
end

-- Handed over: its row, its part of the answer. A task pulled from a line gets its pending entry here.
local function hand_over(id, env, info, src, entry, t, taken, took)
  local n, attempt, marks = C.n, 1, took + (C.lone and ROW_LONE or 0)
  local f = pack('>d', C.fence + n)
  if t then attempt, marks = t.attempts + 1, marks + ROW_HISTORY end
  if src == 'l' then entry = call('XADD', LINE, '*', string.sub(env, 2, 5), id) C.pulled[entry] = true end
  C.ids[n + 1], C.run[2 * n + 1] = id, id
  C.run[2 * n + 2] = row_pack(f, now, attempt, info.max, info.prio, info.flags, marks, src, entry, info.tail, taken)
  local out, o = C.out, 5 * n + 6
  out[o], out[o + 1], out[o + 2], out[o + 3], out[o + 4] = id, f, attempt, t and t.losses + t.lone or 0, env
  C.n, C.rooms[info.agent], C.waits[info.waits] = n + 1, C.rooms[info.agent] - 1, (C.waits[info.waits] or 0) - 1
end

-- nil: handed over. A gate, us to wait, header: refused. true: it does not wait any more. `own`: the line whose head it is.
function consider(id, env, at, src, entry, own)
  local ok, version, _, seq, _, exp, bytes = pcall(unpack_, SEALED, env)
  local info = ok and info_of(env, bytes)
  if not info or version < 1 or version > VERSION_MAX then quarantine(id) return true end
  local t, rules, taken, took, deadline = at and history(at), info.rules, '', 0, false
  if exp > 0 then                                                  -- a start deadline: a task that has started once has met it
    local ends = not t and exp or info.age > 0 and math.floor(seq / 1000) + info.age or math.huge
    if ends <= now then return over(id, env, 'expired', nil, own) end
    deadline = true
  end
  local alone = t and t.losses >= SUSPECT and not C.lone
  local offered = (C.rooms[info.agent] or 0) > 0
  if version > C.reads then return gate('want:@' .. version), nil, { prio = info.prio, place = seq - HEAD_START[info.prio] } end
  if alone or not offered or C.held or #rules > 0 then
    local h = { queue = info.queue, agent = info.agent, tenant = info.tenant, prio = info.prio, cost = info.cost,
      weight = info.weight, tokens = info.tokens, money = info.money, place = seq - HEAD_START[info.prio] }
    local what, till = paused(info.queue, info.agent, info.tenant)
    if what then return gate('p/' .. what), till > 0 and (till - now) * 1000 or nil, h end
    if alone then return gate('want:*'), nil, h end
    if not offered then return gate('want:' .. info.agent), nil, h end
    local g, wait = refused(rules, h, id, own)
    if wait == -1 then return over(id, env, 'dead', 'never_fits: ' .. g.name, own) end
    if g then return g, wait, h end
    if #rules > 0 then taken, took = take(rules, h, id) end
  end
  if deadline then call('ZREM', X, id) end
  hand_over(id, env, info, src, entry, t, taken, took)
end
end
