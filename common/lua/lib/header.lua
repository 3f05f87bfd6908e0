-- header: the part of an envelope that scripts read. docs/wire.md is its description.
--   31 bytes written here: u8 version | u32 generation | f64 seq us | f64 due ms | f64 expires ms | u16 header length
--   header, by the client: u8 flags | u8 priority | u16 max attempts | u32 cost | u8 depth
--                          | queue | agent | tenant | order key | idempotency key, each with a u8 length
--                          | u16 weight (slots it takes; 1) | f64 most age ms
--                          | f64 tokens, f64 micro-dollars that it is expected to use (-1: unknown), each if the flags say so
--   then the body, never read. Tasks of one kind share a header byte for byte, so that scripts look it up rather than read it.
-- A later version keeps all this and may add to its end, so that scripts of this one can move such a task about. A claim says up to
-- which version its worker reads; what is later waits in the line `want:@<version>` for one that reads it.
local VERSION_MAX = 96                                             -- from 97 on it is a letter: an outcome
local VERSION, SEALED, SEALED_BYTES = 1, '>BI4dddH', 31
local ENDED = { d = 'succeeded', x = 'dead', c = 'cancelled', e = 'expired' } -- the first letter of an outcome, where an envelope was
local F_ORDER, F_KEY, F_BIG, F_HOLD, F_AGE, F_WEIGHT, F_ESTIMATE = 1, 2, 4, 8, 16, 32, 64 -- the client's flags
local FLAGS_MAX, HEADER_MAX, UNITS_MAX = 127, SEALED_BYTES + 9 + 5 * 256 + 26, 1e15
local MS_MAX = 315576000000                                        -- ten years: the longest delay, deadline and age
-- A task that is altered gets another generation, far from those that later submits of its id may get (these grow with the clock): the
-- step is 2^32 over the golden ratio, so that no few steps together are a small number.
local function next_gen(gen) return (gen + 2654435761) % 4294967296 end
local function has(flags, bit_) return math.floor(flags / bit_) % 2 == 1 end
local name_ok, header
do
local HEADER_FMT = '>BBHI4BBc0Bc0Bc0Bc0Bc0'
local NAMES = {}                                                   -- names found good in this script
function name_ok(s)
  if not NAMES[s] then NAMES[s] = #s > 0 and #s <= 64 and not string.find(s, '[^%w_.-]') end
  return NAMES[s]
end

local function decode(env)
  local v, gen, seq, due, exp, bytes = unpack_(SEALED, env)
  if v < 1 or v > VERSION_MAX then error('version') end
  local flags, prio, max, cost, depth, queue, agent, tenant, order, key, at = unpack_(HEADER_FMT, env, SEALED_BYTES + 1)
  local body, age, weight, tokens, money = SEALED_BYTES + bytes + 1, 0, 1, nil, nil
  if has(flags, F_WEIGHT) then weight, at = unpack_('>H', env, at) end
  if has(flags, F_AGE) then age, at = unpack_('>d', env, at) end
  if has(flags, F_ESTIMATE) then
    tokens, money, at = unpack_('>dd', env, at)
    if not (tokens >= -1 and tokens <= UNITS_MAX and money >= -1 and money <= UNITS_MAX) then error('range') end
    tokens, money = tokens >= 0 and tokens or nil, money >= 0 and money or nil
  end
  if at > body or (at < body and v == VERSION) then error('length') end
  if not HEAD_START[prio] or not name_ok(queue) or not name_ok(agent) then error('names') end
  if max < 1 or depth > 32 or (flags > FLAGS_MAX and v == VERSION) or weight < 1 or age < 0 or age > MS_MAX then error('range') end
  if (flags > 0 or order ~= '' or key ~= '') and (has(flags, F_ORDER) ~= (order ~= '') or has(flags, F_KEY) ~= (key ~= '')) then error('flags') end
  return { version = v, gen = gen, seq = seq, due = due, exp = exp, flags = flags, prio = prio, max = max, cost = cost, depth = depth,
    queue = queue, agent = agent, tenant = tenant, order = order, key = key, age = age, weight = weight, tokens = tokens, money = money, body = body,
    place = seq - HEAD_START[prio], waits = waits_of(queue, prio) }
end
-- nil when it cannot be read: the caller quarantines that task alone
function header(env) local ok, h = pcall(decode, env) if ok then return h end end
end
local function stored(id) return header(call('GETRANGE', J .. id, 0, HEADER_MAX)) end
local function key_of(h) return K .. #h.tenant .. ':' .. h.tenant .. h.key end
-- when a task is too old to be run any more, ms; 0: never
local function too_old(h) return h.age > 0 and math.floor(h.seq / 1000) + h.age or 0 end
