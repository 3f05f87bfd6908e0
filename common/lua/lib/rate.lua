-- rate: exact trailing windows, each `limit` units in any `window` us, and pacing of the shortest one.
-- Up to 512 units a ring of the last admission times: unit i passes iff the unit `limit` before it is a window old. Above: buckets.
-- B:g:<gate>#<window ms> is one string: f64 limit | f64 window | f64 cursor | f64 units in all buckets, or minus the slots of a ring
-- | f64 us until which what has passed is spread (pacing: GCRA, virtual scheduling) | f64 slots...
-- An edit converts it where it is met and forgets nothing that is in the window, so a ring may have more slots than its limit;
-- a clock that stepped back does the same, with no admission later than now.
local rate_load, rate_wait, pace_wait, rate_take, rate_flush
do
local RING_MAX, RATE_HEAD = 512, 40

-- every admission that a state remembers, as {time us, units, bucket}, oldest first; bucket units count from the bucket's end
local function rate_events(text, window, cursor, sum)
  local ring, ev = sum < 0, {}
  local n = ring and -sum or BUCKETS
  for i = 1, n do
    local v = slot_in(text, (cursor + (ring and i - 1 or i)) % n)
    if v > 0 then ev[#ev + 1] = ring and { math.min(v, us), 1 } or { math.min(us, (cursor - n + i + 1) * window / 60), v, cursor - n + i } end
  end
  return ev
end
local function rate_convert(r, ev, same)                           -- same: buckets are as wide as before, and stay what they are
  local units, times = 0, {}
  for _, e in ipairs(ev) do if e[1] + r.window > us then units = units + e[2] end end
  r.ring, r.whole, r.changed = r.limit <= RING_MAX and units <= RING_MAX, true, true
  if r.ring then
    for _, e in ipairs(ev) do
      if e[1] + r.window > us then for _ = 1, e[2] do times[#times + 1] = e[1] end end
    end
    r.size = math.max(r.limit, units)
    for i, t in ipairs(times) do r.slot[i - 1] = t end
    r.cursor = units % r.size
  else
    r.cursor = math.floor(us / r.width)
    for _, e in ipairs(ev) do
      local b = same and e[3] and math.min(e[3], r.cursor) or math.floor(e[1] / r.width)
      if b > r.cursor - BUCKETS then local s = b % BUCKETS r.slot[s] = (r.slot[s] or 0) + e[2] r.sum = r.sum + e[2] end
    end
  end
end
function rate_load(key, limit, window)
  local r = { key = key, limit = limit, window = window, width = window / 60, text = '', slot = {}, cursor = 0, sum = 0, taken = 0,
    ring = limit <= RING_MAX, size = limit, spread = 0 }
  local state = fetch(key)
  if state and #state >= RATE_HEAD then
    local l, w, cursor, sum, spread = unpack_('>ddddd', state)
    r.spread = math.min(spread, us + window)                       -- the clock may have stepped back, the rule may be another
    local text = string.sub(state, RATE_HEAD + 1)
    local newest = sum < 0 and slot_in(text, (cursor - 1) % -sum) or cursor * w / 60
    if l ~= limit or w ~= window or newest - us > w / 60 then rate_convert(r, rate_events(text, w, cursor, sum), w == window)
    else r.text, r.cursor, r.sum, r.ring, r.size = text, cursor, math.max(sum, 0), sum < 0, -sum end
  elseif not r.ring then r.cursor = math.floor(us / r.width) end
  if not r.ring then buckets_roll(r) end
  return r
end
-- us to wait until `units` fit: 0 = now, -1 = never
function rate_wait(r, units)
  if units > r.limit then return -1 end
  if r.ring then
    local i = (r.cursor - r.limit + units - 1) % r.size            -- the unit that must be a window old
    local t = math.min(slot_at(r, i), us)
    return t == 0 and 0 or math.max(0, t + r.window - us)
  end
  return buckets_wait(r, units)
end
-- us to wait until pacing lets `units` start: `burst` at once, then one each window / limit. More than a burst needs it whole.
function pace_wait(r, units, burst)
  return math.max(0, math.ceil(r.spread - us - math.max(0, burst - units) * r.window / r.limit))
end
function rate_take(r, units)
  r.taken = r.taken + units
  r.spread = math.max(r.spread, us) + units * r.window / r.limit
  if not r.ring then return buckets_add(r, units) end
  for _ = 1, units do r.slot[r.cursor] = us r.cursor = (r.cursor + 1) % r.size end
end
function rate_flush(r)
  if r.taken == 0 and not r.changed then return end
  local state, ttl = pack('>ddddd', r.limit, r.window, r.cursor, r.ring and -r.size or r.sum, r.spread), math.ceil(r.window / 1000) + 60000
  if r.whole or not r.ring then state = state .. buckets_text(r, r.whole and (r.ring and r.size or BUCKETS) or 0)
  else                                                             -- the units just taken, in the slots from here on, round the end
    local from, n, t, old = (r.cursor - r.taken) % r.size, math.min(r.taken, r.size), pack('>d', us), r.text
    local first = math.min(n, r.size - from)
    old = string.rep(t, n - first) .. string.sub(old, (n - first) * 8 + 1)
    state = state .. string.sub(old, 1, from * 8) .. string.rep('\0', from * 8 - #old) .. string.rep(t, first) .. string.sub(old, (from + first) * 8 + 1)
  end
  call('SET', r.key, state, 'PX', ttl)
end
end
