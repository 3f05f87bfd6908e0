-- header: the part of an envelope that scripts read. docs/wire.md is its description.
--   31 bytes written here: u8 version | u32 generation | f64 seq us | f64 due ms | f64 expires ms | u16 header length
--   header, by the client: u8 flags | u8 priority | u16 max attempts | u32 cost | u8 depth
--                          | queue | agent | tenant | order key | idempotency key, each with a u8 length
--   then the body, never read. Tasks of one kind share a header byte for byte, so that scripts look it up rather than read it.
local VERSION, SEALED, SEALED_BYTES = 1, '>BI4dddH', 31
local HEADER_FMT = '>BBHI4BBc0Bc0Bc0Bc0Bc0'
local F_ORDER, F_KEY, F_BIG, F_HOLD = 1, 2, 4, 8                   -- the client's flags
local HEADER_MAX = SEALED_BYTES + 9 + 5 * 256
local function has(flags, bit_) return math.floor(flags / bit_) % 2 == 1 end
local NAMES = {}                                                   -- names found good in this script
local function name_ok(s)
  if not NAMES[s] then NAMES[s] = #s > 0 and #s <= 64 and not string.find(s, '[^%w_.-]') end
  return NAMES[s]
end

local function decode(env)
  local v, gen, seq, due, exp, bytes = unpack_(SEALED, env)
  if v ~= VERSION then error('version') end
  local flags, prio, max, cost, depth, queue, agent, tenant, order, key, body = unpack_(HEADER_FMT, env, SEALED_BYTES + 1)
  if body ~= SEALED_BYTES + bytes + 1 then error('length') end
  if not HEAD_START[prio] or not name_ok(queue) or not name_ok(agent) then error('names') end
  if max < 1 or depth > 32 or flags > 15 then error('range') end
  if (flags > 0 or order ~= '' or key ~= '') and (has(flags, F_ORDER) ~= (order ~= '') or has(flags, F_KEY) ~= (key ~= '')) then error('flags') end
  return { gen = gen, seq = seq, due = due, exp = exp, flags = flags, prio = prio, max = max, cost = cost, depth = depth,
    queue = queue, agent = agent, tenant = tenant, order = order, key = key, body = body,
    place = seq - HEAD_START[prio], waits = waits_of(queue, prio) }
end
-- nil when it cannot be read: the caller quarantines that task alone
local function header(env) local ok, h = pcall(decode, env) if ok then return h end end
local function stored(id) return header(call('GETRANGE', J .. id, 0, HEADER_MAX)) end
local function key_of(h) return K .. #h.tenant .. ':' .. h.tenant .. h.key end

-- B:at, only for tasks that failed or were lost before: attempts, losses, lone losses, hand-backs, fence, error
local NO_FENCE = string.rep('\0', 8)
local function no_history() return { attempts = 0, losses = 0, lone = 0, backs = 0, fence = NO_FENCE, error = '' } end
local function history(v)
  if not v then return no_history() end
  local ok, a, l, s, b, f, o = pcall(unpack_, '>HHHHc8', v)
  if not ok then return no_history() end                           -- nobody has written that
  return { attempts = a, losses = l, lone = s, backs = b, fence = f, error = string.sub(v, o) }
end
local function remember(id, t)
  local cap = function(n) return math.min(n, 65535) end
  call('HSET', AT, id, pack('>HHHHc8', cap(t.attempts), cap(t.losses), cap(t.lone), cap(t.backs), t.fence)
    .. string.sub(t.error or '', 1, 1024))
end
-- A task that cannot be read is put aside alone: dead as `invalid`, its raw bytes kept, bounded.
local QUARANTINE_MAX = 65536
local function quarantine(id)
  local bytes = call('STRLEN', J .. id)
  if bytes == 0 or string.find(call('GETRANGE', J .. id, 0, 0), '%l') then return end -- nothing there, or the record of its end
  if bytes > QUARANTINE_MAX then call('SET', J .. id, call('GETRANGE', J .. id, 0, QUARANTINE_MAX - 1)) end
  call('ZADD', DEAD, num(now), id)
  local t = history()
  t.error = 'invalid: the envelope cannot be read'
  remember(id, t)
  count('o:quarantined', 1)
end
