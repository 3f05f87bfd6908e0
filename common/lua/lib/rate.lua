-- rate: one exact trailing window, `limit` units in any `window` us.
-- Up to 512 units: a ring of the last `limit` admission times; unit i passes iff the unit `limit` before it is a window old.
-- Above: 61 buckets of a sixtieth; a bucket counts until its end is a window old (never above the limit, at most 1/61 below).
-- B:g:<gate> is one string: f64 limit | f64 window | f64 cursor | f64 sum | f64 slots... An edit converts it where it is met.
local RING_MAX, BUCKETS, RATE_HEAD = 512, 61, 32
local function rate_slots(limit) if limit <= RING_MAX then return limit end return BUCKETS end

-- every admission that another rule's state remembers, as {time us, units}, oldest first; bucket units count from the bucket's end
local function rate_events(state, limit, window, cursor)
  local n, ring, ev = rate_slots(limit), limit <= RING_MAX, {}
  for i = 1, n do
    local at = RATE_HEAD + ((cursor + (ring and i - 1 or i)) % n) * 8 + 1
    local v = #state >= at + 7 and unpack_('>d', state, at) or 0
    if v > 0 then ev[#ev + 1] = ring and { math.min(v, us), 1 } or { math.min(us, (cursor - n + i + 1) * window / 60), v } end
  end
  return ev
end
local function rate_convert(r, ev)
  if r.limit <= RING_MAX then
    local times = {}
    for _, e in ipairs(ev) do for _ = 1, math.min(e[2], r.limit) do times[#times + 1] = e[1] end end
    local from = math.max(0, #times - r.limit)
    for i = from + 1, #times do r.slot[i - from - 1] = times[i] end
    r.cursor = (#times - from) % r.limit
  else
    r.cursor = math.floor(us / r.width)
    for _, e in ipairs(ev) do
      local b = math.floor(e[1] / r.width)
      if b > r.cursor - BUCKETS then local s = b % BUCKETS r.slot[s] = (r.slot[s] or 0) + e[2] r.sum = r.sum + e[2] end
    end
  end
  r.whole = true
end
local function rate_load(gate, limit, window)
  local r = { key = G .. gate, limit = limit, window = window, width = window / 60, slot = {}, cursor = 0, sum = 0, taken = 0 }
  local state = call('GET', r.key)
  if state and #state >= RATE_HEAD then
    local l, w, cursor, sum = unpack_('>dddd', state)
    if l == limit and w == window then r.state, r.cursor, r.sum = state, cursor, sum
    else rate_convert(r, rate_events(state, l, w, cursor)) end
  elseif limit > RING_MAX then r.cursor = math.floor(us / r.width) end
  if limit > RING_MAX then                                         -- drop what has left the window
    for i = 0, BUCKETS - 1 do
      local at = RATE_HEAD + i * 8 + 1
      if r.state and #r.state >= at + 7 then r.slot[i] = unpack_('>d', r.state, at) end
    end
    local cur = math.max(math.floor(us / r.width), r.cursor)       -- a clock that stepped back stays in the newest bucket
    for b = r.cursor + 1, math.min(cur, r.cursor + BUCKETS) do
      local s = b % BUCKETS r.sum = r.sum - (r.slot[s] or 0) r.slot[s] = 0
    end
    r.cursor, r.whole = cur, true
  end
  return r
end
-- the time of the unit `back` units after the oldest in the ring
local function rate_nth(r, back)
  local i = (r.cursor + back) % r.limit
  if r.slot[i] then return r.slot[i] end
  local at = RATE_HEAD + i * 8 + 1
  local t = r.state and #r.state >= at + 7 and unpack_('>d', r.state, at) or 0
  return math.min(t, us)
end
-- us to wait until `units` fit: 0 = now, -1 = never
local function rate_wait(r, units)
  if units > r.limit then return -1 end
  if r.limit <= RING_MAX then
    local t = rate_nth(r, units - 1)
    return t == 0 and 0 or math.max(0, t + r.window - us)
  end
  local free = r.limit - r.sum
  if units <= free then return 0 end
  for b = r.cursor - BUCKETS + 1, r.cursor do
    free = free + (r.slot[b % BUCKETS] or 0)
    if units <= free then return math.max(1, math.ceil((b + 1) * r.width + r.window - us)) end
  end
  return math.ceil(r.window)
end
local function rate_take(r, units)
  if r.limit <= RING_MAX then
    for _ = 1, units do r.slot[r.cursor] = us r.cursor = (r.cursor + 1) % r.limit end
  else
    local s = r.cursor % BUCKETS
    r.slot[s], r.sum = (r.slot[s] or 0) + units, r.sum + units
  end
  r.taken = r.taken + units
end
local function rate_flush(r)
  local ring, head = r.limit <= RING_MAX, pack('>dddd', r.limit, r.window, r.cursor, r.sum)
  if r.taken == 0 and not (ring and r.whole) then return end
  if not ring then
    local t = {}
    for i = 0, BUCKETS - 1 do t[i + 1] = r.slot[i] or 0 end
    call('SET', r.key, head .. pack('>' .. string.rep('d', BUCKETS), unpack(t)))
  elseif r.whole then
    call('SET', r.key, head)
    for i, t in pairs(r.slot) do call('SETRANGE', r.key, RATE_HEAD + i * 8, pack('>d', t)) end
  else                                                             -- the units just taken: at most two runs of slots
    local from, n, t = (r.cursor - r.taken) % r.limit, r.taken, pack('>d', us)
    local first = math.min(n, r.limit - from)
    call('SETRANGE', r.key, 0, head)
    call('SETRANGE', r.key, RATE_HEAD + from * 8, string.rep(t, first))
    if n > first then call('SETRANGE', r.key, RATE_HEAD, string.rep(t, n - first)) end
  end
  call('PEXPIRE', r.key, math.ceil(r.window / 1000) + 60000)
end
