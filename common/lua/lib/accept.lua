-- accept: takes new tasks in, from a producer or from a handler's outbox. ARGV from `at`, six a task:
--   id | timing: '' or `delay:deadline` in ms | fingerprint of a keyed task | header | body | body that lies apart
-- Replies, one string a task: q accepted | d<id> duplicate | c<id> conflict: key reused for another task | f full | u too many
-- queues | i invalid. A task is checked whole before its first write; envelopes are written before what names them.
local ITEM, QUEUES_MAX = 6, 256
local MS_MAX = 315576000000                                        -- ten years: the longest delay
local KINDS, QUEUES, FULL, KEYED, NEW_QUEUES = {}, {}, {}, {}, 0     -- QUEUES: false, known, or new: named with its first task

local function queue_known(queue)
  if QUEUES[queue] == nil then
    if call('SISMEMBER', B .. ':qs', queue) == 1 then QUEUES[queue] = 'known'
    else
      QUEUES[queue] = call('SCARD', B .. ':qs') + NEW_QUEUES < QUEUES_MAX and 'new'
      if QUEUES[queue] then NEW_QUEUES = NEW_QUEUES + 1 end
    end
  end
  return QUEUES[queue]
end
local function name_queue(queue)
  call('SADD', B .. ':qs', queue)
  QUEUES[queue], NEW_QUEUES = 'known', NEW_QUEUES - 1
end
-- What a header says, read once a batch; `plain` when a task of that kind goes straight to its stream: no key, no order, no rule
-- that matches, nobody of its agent in line. False when it cannot be read.
local function kind_of(head)
  local k = KINDS[head]
  if k == nil then
    k = header(pack(SEALED, VERSION, 0, 0, 0, 0, #head) .. head) or false
    if k then k.plain = k.flags == 0 and #book_gates(k) == 0 and not gate('want:' .. k.agent).head and queue_known(k.queue) end
    KINDS[head] = k
  end
  return k
end
-- the reply to a task that is not plain: q, or why not
local function refusal(h, id, print_, most)
  if not queue_known(h.queue) then return 'u' end
  if h.key ~= '' then
    local first = KEYED[key_of(h)] or call('GET', key_of(h))
    if first and call('EXISTS', J .. id) == 1 then return 'd' .. id end -- it is in, whoever has the key now
    if first then return (string.sub(first, 65) == print_ and 'd' or 'c') .. string.gsub(string.sub(first, 1, 64), ' ', '') end
  end
  if most > 0 then
    if call('EXISTS', J .. id) == 1 then return 'd' .. id end      -- it is in, and may be what fills the queue
    FULL[h.waits] = FULL[h.waits] or tonumber(call('HGET', N, h.waits) or '0')
    if FULL[h.waits] >= most then return 'f' end
    FULL[h.waits] = FULL[h.waits] + 1
  end
  return 'q'
end
local function timing(text)
  if text == '' then return 0, 0 end
  local delay, ttl = string.match(text, '^(%d+):(%d+)$')
  delay, ttl = tonumber(delay), tonumber(ttl)
  if delay and delay <= MS_MAX and ttl <= MS_MAX then return delay > 0 and now + delay or 0, ttl > 0 and now + ttl or 0 end
end
-- a task whose envelope is written goes to its place
local function enter(h, id, o)
  if has(h.flags, F_BIG) then
    TAKEN[#TAKEN + 1] = B .. ':b:' .. id
    call('SET', TAKEN[#TAKEN], ARGV[o + 5])
  end
  if h.key ~= '' then
    KEYED[key_of(h)] = string.format('%-64s', id) .. ARGV[o + 2]
    call('SET', key_of(h), KEYED[key_of(h)])
    TAKEN[#TAKEN + 1] = key_of(h)
  end
  if h.exp > 0 then call('ZADD', X, num(h.exp), id) end
  if h.order ~= '' then call('ZADD', O .. h.order, num(h.seq), id) end
  if h.order == '' then return place(h, id) end
  local head = call('ZRANGE', O .. h.order, 0, 0)[1]
  if head == id then return place(h, id) end
  count('behind', 1)
  if call('GETRANGE', J .. head, 0, 0) ~= string.char(VERSION) then order_next(h, head) end -- its envelope was deleted: heal
end

local function accept(at, n, most)
  local seq, out, sets, seen, clash = after('seq', n) - 1, {}, {}, {}, false
  local kinds, heads = {}, {}
  for i = 1, n do
    local o = at + (i - 1) * ITEM
    local id, head, s = ARGV[o], ARGV[o + 3], seq + i
    local due, exp = timing(ARGV[o + 1])
    local k = kind_of(head)
    if not k or not due or #id > 64 or not string.find(id, '^[%w_-]+$') then out[i] = 'i'
    elseif seen[id] then out[i] = 'd' .. id
    else
      local env, h = pack(SEALED, VERSION, s % 4294967296, s, due, exp, #head) .. head .. ARGV[o + 4], nil
      if k.plain and most == 0 and due == 0 and exp == 0 then out[i] = 'q' else h = header(env) out[i] = refusal(h, id, ARGV[o + 2], most) end
      if out[i] == 'q' then
        seen[id], kinds[i], heads[i] = true, k, h
        if h and h.key ~= '' then KEYED[key_of(h)] = string.format('%-64s', id) .. ARGV[o + 2] end
        sets[#sets + 1], sets[#sets + 2] = J .. id, env
      end
    end
  end
  if #sets > 0 then clash = call('MSETNX', unpack(sets)) == 0 end
  for k = 1, clash and 0 or #sets, 2 do TAKEN[#TAKEN + 1] = sets[k] end
  local j = -1
  for i = 1, n do
    local o = at + (i - 1) * ITEM
    local id, k, h = ARGV[o], kinds[i], heads[i]
    if k then
      j = j + 2
      if clash and call('SETNX', sets[j], sets[j + 1]) == 0 then out[i] = 'd' .. id
      else
        if clash then TAKEN[#TAKEN + 1] = sets[j] end
        if QUEUES[k.queue] == 'new' then name_queue(k.queue) end
        count(k.waits, 1)
        if h then enter(h, id, o) else into_stream(k.queue, k.prio, (seq + i) % 4294967296, id) end
      end
    end
  end
  return out
end
