-- prelude: the shard base, server time (read once), key names, counters, the doorbell.
-- KEYS[1] is the base `tidemill:{shard}`; every other key is derived from it and so shares its slot.
local B, call, pack, unpack_ = KEYS[1], redis.call, struct.pack, struct.unpack
--@clock
local now = math.floor(us / 1000)                                  -- ms, as all stored times but seq and fences
local J, R, L, G, O, K = B .. ':j:', B .. ':r:', B .. ':l:', B .. ':g:', B .. ':o:', B .. ':k:'
local RUN, AT, Z, X, N, PARK, DEAD = B .. ':run', B .. ':at', B .. ':z', B .. ':x', B .. ':n', B .. ':park', B .. ':dead'
local W, IDLE, BELL, FIRST, LINE = B .. ':w', B .. ':idle', B .. ':bell', B .. ':s:first', B .. ':s:line'
local PRIOS = { 20, 10, 5, 1 }                                     -- urgent, high, normal, low: best first
local HEAD_START = { [20] = 300e6, [10] = 60e6, [5] = 10e6, [1] = 0 } -- us; the finite lead in every line

local function num(x) return string.format('%.0f', x) end          -- never tostring() on us values
-- Names made of queue and priority are built once a script: concatenation is a good part of a task's cost.
local STREAMS, WAITS = { [20] = {}, [10] = {}, [5] = {}, [1] = {} }, { [20] = {}, [10] = {}, [5] = {}, [1] = {} }
local function stream_of(queue, prio)
  local s = STREAMS[prio][queue]
  if not s then s = B .. ':q:' .. queue .. ':s:' .. prio STREAMS[prio][queue] = s end
  return s
end
local function waits_of(queue, prio)                               -- the counter of its waiting tasks
  local w = WAITS[prio][queue]
  if not w then w = 'w:' .. prio .. ':' .. queue WAITS[prio][queue] = w end
  return w
end

-- Counters of B:n are added up in Lua and written once, at the end.
local deltas = {}
local function count(field, d) deltas[field] = (deltas[field] or 0) + d end
local function flush_counts()
  for f, d in pairs(deltas) do if d ~= 0 then call('HINCRBY', N, f, d) end end
end

-- The doorbell holds at most one ring, and only when somebody sleeps. Fragments only say that it is due.
local RING = false
local function ring()
  if RING and call('SCARD', IDLE) > 0 and call('LLEN', BELL) == 0 then call('RPUSH', BELL, '1') end
end

-- A worker asleep that offers this agent is woken by name; the common bell would wake just anybody.
local function ring_able(agent, but)
  for _, w in ipairs(call('SRANDMEMBER', IDLE, 32)) do
    if w ~= but and string.find(call('HGET', B .. ':wa', w) or '', ',' .. agent .. ',', 1, true) then
      call('RPUSH', B .. ':ctl:' .. w, 'ring')
      call('PEXPIRE', B .. ':ctl:' .. w, 60000)
      return
    end
  end
end

-- Server µs made strictly increasing, also when the clock steps back: sequence and fence numbers.
local function after(field, n)
  local first = math.max((tonumber(call('HGET', N, field) or '0') or 0) + 1, us)
  call('HSET', N, field, num(first + n - 1))
  return first
end
