-- alter: what an operator changes of a waiting task: its priority, its queue, or that it is due now. scheduled -> queued | parked;
-- queued <-> parked. It keeps the place that it was accepted with, as far as its priority lets it.
-- ARGV: (id, verb, value)*, at most 256. Verbs: P priority number, Q queue, N due now
-- Reply: one letter a task: o done | s it is so already | r runs | e has ended | u unknown | t too many queues | ! cannot be read
local n, out = #ARGV / 3, {}
if n > 256 or n ~= math.floor(n) then return redis.error_reply('BATCH at most 256 tasks a call, three values each') end
local WAITS_ = { queued = true, scheduled = true, parked = true }

local function head_of(h)
  local head = pack('>BBHI4B', h.flags, h.prio, h.max, h.cost, h.depth)
  for _, text in ipairs({ h.queue, h.agent, h.tenant, h.order, h.key }) do head = head .. pack('>Bc0', #text, text) end
  return head
end
-- the change; a letter where there is none to be made
local function change(h, state, verb, value)
  if verb == 'P' then
    local prio = tonumber(value)
    if not HEAD_START[prio] then return '!' end
    if h.prio == prio then return 's' end
    h.prio = prio
  elseif verb == 'Q' then
    if h.queue == value then return 's' end
    if not name_ok(value) then return '!' end
    if not queue_known(value) then return 't' end
    if QUEUES[value] == 'new' then name_queue(value) end
    h.queue = value
  else
    if state ~= 'scheduled' and not (h.due > now) then return 's' end
    h.due = 0
  end
end

local function one(id, verb, value)
  local state, h, by = where(id)
  if not WAITS_[state] then return state == 'running' and 'r' or state == 'unknown' and 'u' or 'e' end
  if not h then return '!' end
  local was, prefix, needed = h.waits, #head_of(h), book_gates(h)
  local no = change(h, state, verb, value)
  if no then return no end
  -- behind its order key's head, or not due: it stays where it is
  local stays = state == 'parked' and string.sub(by, 1, 6) == 'order:' or state == 'scheduled' and verb ~= 'N'
  local env = call('GET', J .. id)
  if not stays then lift(h, id) unreserve(needed, id) end           -- what it needs may be another thing now
  local tail = string.sub(env, SEALED_BYTES + prefix + 1)           -- from the most age on, as it is
  local head = head_of(h)
  h.gen, h.waits, h.place = next_gen(h.gen), waits_of(h.queue, h.prio), h.seq - HEAD_START[h.prio]
  call('SET', J .. id, pack(SEALED, h.version, h.gen, h.seq, h.due, h.exp, h.body - 1 - SEALED_BYTES - prefix + #head) .. head .. tail)
  count(was, -1)
  count(h.waits, 1)
  if not stays then
    NEXT = { h.gen, id }
    into_queue(h, id)
    NEXT = nil
  end
  return 'o'
end

for i = 1, n do out[i] = one(ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]) end
flush()
return table.concat(out)
