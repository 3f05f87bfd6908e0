-- intake: what is looked at before a task is taken in, and where it goes then. What of a submit is where in ARGV: see accept.
local ITEM, KINDS, FULL, KEYED = 6, {}, {}, {}

-- What a header says, read once a batch; `plain` when a task of that kind goes straight to its stream: no key, no order, no rule
-- that matches, nobody of its agent in line. False when it cannot be read.
local function kind_of(head)
  local k = KINDS[head]
  if k == nil then
    k = header(pack(SEALED, VERSION, 0, 0, 0, 0, #head) .. head) or false
    if k then
      k.never = never(book_gates(k), k)
      k.plain = k.flags == 0 and #book_gates(k) == 0 and not gate('want:' .. k.agent).head and queue_known(k.queue)
    end
    KINDS[head] = k
  end
  return k
end
-- d or c when its idempotency key is taken
local function known(h, id, print_)
  local first = h.key ~= '' and (KEYED[key_of(h)] or call('GET', key_of(h)))
  if not first then return end
  if call('EXISTS', J .. id) == 1 then return 'd' .. id end        -- it is in, whoever has the key now
  return (string.sub(first, 65) == print_ and 'd' or 'c') .. string.gsub(string.sub(first, 1, 64), ' ', '')
end
-- u or f when it has no room
local function no_room(h, id, most)
  if not queue_known(h.queue) then return 'u' end
  if most == 0 then return end
  if call('EXISTS', J .. id) == 1 then return 'd' .. id end        -- it is in, and may be what fills the queue
  local full = FULL[h.waits] or tonumber(call('HGET', N, h.waits) or '0') + (deltas[h.waits] or 0)
  if full >= room(h, most) then count('refused', 1) return 'f' .. hint(h.waits, full - room(h, most) + 1) end
  FULL[h.waits] = full + 1
end
-- delay, start deadline and mode; nothing when it cannot be read
local function timing(text)
  if text == '' then return 0, 0, '' end
  local delay, ttl, mode = string.match(text, '^(%d+):(%d+):?([rb]?)$')
  delay, ttl = tonumber(delay), tonumber(ttl)
  if delay and delay <= MS_MAX and ttl <= MS_MAX and (mode ~= 'b' or delay > 0) then return delay, ttl, mode end
end
-- the sealed part for what is timed so: due, and the first of its deadlines
local function sealed(h, s, gen, delay, ttl, head)
  local exp, old = ttl > 0 and now + ttl or 0, h.age > 0 and math.floor(s / 1000) + h.age or 0
  if old > 0 and (exp == 0 or old < exp) then exp = old end
  return pack(SEALED, VERSION, gen, s, delay > 0 and now + delay or 0, exp, #head)
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
  local first = call('GETRANGE', J .. head, 0, 0)
  if first == '' or ENDED[first] then order_next(h, head) end      -- its envelope was deleted: heal
end
