-- rate: exact trailing windows, each `limit` units in any `window` us, and pacing of the shortest one.
-- Up to 512 units a ring of the last admission times: unit i passes iff the unit `limit` before it is a window old. Above: 61
-- buckets of a sixtieth; a bucket counts until its end is a window old (never above the limit, at most 1/61 below).
-- B:g:<gate>#<window ms> is one string: f64 limit | f64 window | f64 cursor | f64 units in all buckets, or minus the slots of a ring
-- | f64 us until which what has passed is spread (pacing: GCRA, virtual scheduling) | f64 slots...
-- An edit converts it where it is met and forgets nothing that is in the window, so a ring may have more slots than its limit;
-- a clock that stepped back does the same, with no admission later than now.
local RING_MAX, BUCKETS, RATE_HEAD = 512, 61, 40
local function rate_slot(state, i)
  local at = RATE_HEAD + i * 8 + 1
  return #state >= at + 7 and unpack_('>d', state, at) or 0
end

-- every admission that a state remembers, as {time us, units, bucket}, oldest first; bucket units count from the bucket's end
local function rate_events(state, window, cursor, sum)
  local ring, ev = sum < 0, {}
  local n = ring and -sum or BUCKETS
  for i = 1, n do
    local v = rate_slot(state, (cursor + (ring and i - 1 or i)) % n)
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
local function rate_at(r, i) return r.slot[i] or (r.state and rate_slot(r.state, i)) or 0 end
local function rate_load(key, limit, window)
  local r = { key = key, limit = limit, window = window, width = window / 60, slot = {}, cursor = 0, sum = 0, taken = 0,
    ring = limit <= RING_MAX, size = limit, spread = 0 }
  local state = fetch(key)
  if state and #state >= RATE_HEAD then
    local l, w, cursor, sum, spread = unpack_('>ddddd', state)
    r.spread = math.min(spread, us + window)                       -- the clock may have stepped back, the rule may be another
    local newest = sum < 0 and rate_slot(state, (cursor - 1) % -sum) or cursor * w / 60
    if l ~= limit or w ~= window or newest - us > w / 60 then rate_convert(r, rate_events(state, w, cursor, sum), w == window)
    else r.state, r.cursor, r.sum, r.ring, r.size = state, cursor, math.max(sum, 0), sum < 0, -sum end
  elseif not r.ring then r.cursor = math.floor(us / r.width) end
  if not r.ring then                                               -- drop what has left the window
    local cur = math.max(math.floor(us / r.width), r.cursor)       -- a clock a little back stays in the newest bucket
    if cur - r.cursor >= BUCKETS then r.state, r.slot, r.sum = nil, {}, 0 end
    for b = math.max(r.cursor, cur - BUCKETS) + 1, r.sum > 0 and cur or 0 do
      local s = b % BUCKETS r.sum, r.slot[s] = r.sum - rate_at(r, s), 0
    end
    r.cursor = cur
  end
  return r
end
-- us to wait until `units` fit: 0 = now, -1 = never
local function rate_wait(r, units)
  if units > r.limit then return -1 end
  if r.ring then
    local i = (r.cursor - r.limit + units - 1) % r.size            -- the unit that must be a window old
    local t = math.min(rate_at(r, i), us)
    return t == 0 and 0 or math.max(0, t + r.window - us)
  end
  local free = r.limit - r.sum
  if units <= free then return 0 end
  for b = r.cursor - BUCKETS + 1, r.cursor do
    free = free + rate_at(r, b % BUCKETS)
    if units <= free then return math.max(1, math.ceil((b + 1) * r.width + r.window - us)) end
  end
  return math.ceil(r.window)
end
-- us to wait until pacing lets `units` start: `burst` at once, then one each window / limit. More than a burst needs it whole.
local function pace_wait(r, units, burst)
  return math.max(0, math.ceil(r.spread - us - math.max(0, burst - units) * r.window / r.limit))
end
local function rate_take(r, units)
  r.taken = r.taken + units
  r.spread = math.max(r.spread, us) + units * r.window / r.limit
  if r.ring then
    for _ = 1, units do r.slot[r.cursor] = us r.cursor = (r.cursor + 1) % r.size end
  else
    local s = r.cursor % BUCKETS
    r.slot[s], r.sum = rate_at(r, s) + units, r.sum + units
  end
end
local function rate_flush(r)
  if r.taken == 0 and not r.changed then return end
  local state, ttl = pack('>ddddd', r.limit, r.window, r.cursor, r.ring and -r.size or r.sum, r.spread), math.ceil(r.window / 1000) + 60000
  if r.whole then
    local t, n = {}, r.ring and r.size or BUCKETS
    for i = 1, n do t[i] = r.slot[i - 1] or 0 end
    state = state .. pack('>' .. string.rep('d', n), unpack(t))
  elseif not r.ring then                                           -- the buckets that have changed, between those that have not
    local old, changed, at, parts = string.sub(r.state or '', RATE_HEAD + 1), {}, 1, { state }
    for i in pairs(r.slot) do changed[#changed + 1] = i end
    table.sort(changed)
    for _, i in ipairs(changed) do
      local kept = string.sub(old, at, i * 8)
      parts[#parts + 1] = kept .. string.rep('\0', i * 8 + 1 - at - #kept) .. pack('>d', r.slot[i])
      at = i * 8 + 9
    end
    state = table.concat(parts) .. string.sub(old, at)
  else                                                             -- the units just taken, in the slots from here on, round the end
    local from, n, t, old = (r.cursor - r.taken) % r.size, math.min(r.taken, r.size), pack('>d', us), string.sub(r.state or '', RATE_HEAD + 1)
    local first = math.min(n, r.size - from)
    old = string.rep(t, n - first) .. string.sub(old, (n - first) * 8 + 1)
    state = state .. string.sub(old, 1, from * 8) .. string.rep('\0', from * 8 - #old) .. string.rep(t, first) .. string.sub(old, (from + first) * 8 + 1)
  end
  call('SET', r.key, state, 'PX', ttl)
end
