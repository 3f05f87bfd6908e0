-- expire: start deadlines and most ages, the retention of dead tasks, and what a clock that stepped back has left.
local DEAD_MAX = 10000
local function expire(most)
  local due = call('ZRANGEBYSCORE', X, '-inf', num(now), 'LIMIT', 0, most)
  for _, id in ipairs(due) do
    local state, h = where(id)
    call('ZREM', X, id)
    if h and (state == 'queued' or state == 'scheduled' or state == 'parked') then
      local t = history(call('HGET', AT, id))
      lift(h, id)
      count(h.waits, -1)
      finish(id, { outcome = 'expired', attempt = t.attempts, losses = t.losses + t.lone, fence = t.fence, start = 0, agent = h.agent,
        history = true }, h)
    end
  end
  return #due
end

-- Dead tasks leave after 90 days, or the oldest above 10,000; one held at the head of its order key stays, and those behind it
-- in age are looked at past it. Each drop is an event.
local DEAD_PAGES = 16
local function drop_old_dead(most)
  local old, over = num(now - tonumber(DEAD_MS)), call('ZCARD', DEAD) - DEAD_MAX
  for page = 0, DEAD_PAGES - 1 do
    local ids, dropped = call('ZRANGEBYSCORE', DEAD, '-inf', old, 'LIMIT', page * most, most), false
    if #ids == 0 and over > 0 then ids = call('ZRANGE', DEAD, page * most, page * most + math.min(over, most) - 1) end
    for _, id in ipairs(ids) do
      local h = stored(id)
      if not (h and has(h.flags, F_HOLD)) then
        forget_dead(id)
        log_event('dropped', id)
        dropped = true
      end
    end
    if dropped or #ids < most then return end
  end
end

-- The server's clock went back: leases and gate times that it left in the future are brought to what they could be now.
local function stepped_back(lease)
  for _, w in ipairs(call('ZRANGEBYSCORE', W, num(now + lease), '+inf', 'LIMIT', 0, 1000)) do call('ZADD', W, num(now + lease), w) end
  for _, p in ipairs(PRIOS) do
    local key = B .. ':ready:' .. p
    for _, g in ipairs(call('ZRANGEBYSCORE', key, num(now), '+inf', 'LIMIT', 0, 1000)) do call('ZADD', key, num(now), g) end
  end
end
