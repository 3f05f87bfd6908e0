-- place: where a waiting task goes. Exactly one of: the schedule, behind its order key's head, a line, its stream.
local TAKEN, JOINS, NEXT = {}, {}, nil                             -- for the rescue: keys made, lines joined, who is being placed
local READY, SOONEST = {}, nil                                     -- due ms of the schedule's first, unless it has changed
for i, p in ipairs(PRIOS) do READY[i] = B .. ':ready:' .. p end
local FRESH = {}                                                   -- prio -> { 0, queue, ... }: streams that have unread entries
local function into_stream(queue, prio, gen, id)
  call('XADD', stream_of(queue, prio), '*', pack('>I4', gen), id)
  local f = FRESH[prio]
  if not f then f = { seen = {} } FRESH[prio] = f end
  if not f.seen[queue] then f.seen[queue], f[#f + 1], f[#f + 2], RING = true, 0, queue, true end
end
local function into_first(h, id)
  call('XADD', FIRST, '*', pack('>I4', h.gen), id)
  RING = true
end
local function schedule(id, due)
  call('ZADD', Z, num(due), id)
  SOONEST = nil
  if call('ZRANGE', Z, 0, 0)[1] == id then RING = true end    -- a new earliest: sleepers must set their timers anew
end
local function join(g, h, id)
  park(g, h, id)
  JOINS[#JOINS + 1] = { g.name, num(h.place), id, PARKED[#PARKED], h.gen }
end
-- Nobody overtakes: a task joins a line that somebody with a smaller place waits in; else it goes to its stream.
local function into_queue(h, id)
  local rules = book_gates(h)
  for i = 1, #rules do
    local g = gate(rules[i].name)
    if g.head and g.head < h.place and units_of(rules[i], h) > 0 then return join(g, h, id) end
  end
  local want = gate('want:' .. h.agent)
  if want.head and want.head < h.place then return join(want, h, id) end
  into_stream(h.queue, h.prio, h.gen, id)
end
local function place(h, id)
  if h.due > now then schedule(id, h.due) else into_queue(h, id) end
end
-- The head of an order key has ended: the next goes to its place.
local function order_next(h, id)
  local key = O .. h.order
  call('ZREM', key, id)
  local next_id = call('ZRANGE', key, 0, 0)[1]
  while next_id do
    local n = stored(next_id)
    count('behind', -1)
    if n then
      NEXT = { n.gen, next_id }
      place(n, next_id)
      NEXT = nil
      return
    end
    quarantine(next_id)                                            -- unreadable or gone: heal, and go on
    call('ZREM', key, next_id)
    next_id = call('ZRANGE', key, 0, 0)[1]
  end
end
local function order_ended(h, id)
  if not has(h.flags, F_ORDER) then return end
  if call('ZRANGE', O .. h.order, 0, 0)[1] == id then order_next(h, id)
  elseif call('ZREM', O .. h.order, id) == 1 then count('behind', -1) end
end

local function soonest()
  SOONEST = SOONEST or tonumber(call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2]) or math.huge
  return SOONEST
end
local function promote(most)
  if soonest() > now then return 0 end
  local due = call('ZRANGEBYSCORE', Z, '-inf', num(now), 'LIMIT', 0, most)
  local gone = {}
  for _, id in ipairs(due) do                                      -- one that cannot be placed now stays due, alone
    local ok, h = pcall(stored, id)
    if ok and pcall(h and into_queue or quarantine, h or id, id) then gone[#gone + 1] = id end
  end
  if #gone > 0 then call('ZREM', Z, unpack(gone)) end
  SOONEST = nil
  return #gone
end
-- Takes a waiting task out of wherever it is; its stream entry, if any, becomes a ghost.
local function lift(h, id)
  SOONEST = nil
  if call('ZREM', Z, id) == 1 or unpark(id) then return end
  local parked = call('HGET', PARK, id)
  if parked then
    local name = string.sub(parked, 3)
    local head = call('ZRANGE', L .. name, 0, 0)[1] == id
    unreserve(book_gates(h), id)
    call('ZREM', L .. name, id)
    call('HDEL', PARK, id)
    if head then MARKS[name], RING = now, true end
  end
end

local function place_flush()
  for prio, f in pairs(FRESH) do
    call('ZADD', B .. ':live:' .. prio, 'NX', unpack(f))
  end
  FRESH = {}
end
-- When something becomes due next: the schedule or a gate. 0: nothing.
local function next_due()
  local due = soonest()
  for i = 1, call('EXISTS', unpack(READY)) > 0 and #READY or 0 do
    due = math.min(due, tonumber(call('ZRANGE', READY[i], 0, 0, 'WITHSCORES')[2]) or math.huge)
  end
  return due == math.huge and 0 or due
end
local function write() gates_flush() place_flush() flush_counts() end
local function flush() write() ring() end
