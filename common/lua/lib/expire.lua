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

-- Tasks of agents that no worker has known for `after_` ms are dead. B:nobody  zset: agent by the ms since when that is so.
local NOBODY, UNKNOWN_PAGE = B .. ':nobody', 32
local function known_to_somebody(agent)
  for _, agents in ipairs(call('HVALS', B .. ':wa')) do            -- as many as there are workers
    if string.find(agents, ',' .. agent .. ',', 1, true) then return true end
  end
end
local function bury_unknown(agent)
  for _, id in ipairs(call('ZRANGE', L .. 'want:' .. agent, 0, UNKNOWN_PAGE - 1)) do
    local h, t = stored(id), history(call('HGET', AT, id))
    if h then
      lift(h, id)
      count(h.waits, -1)
      local text = 'unknown_agent: no worker has known the agent ' .. agent .. ' for too long'
      note(t, t.attempts, text)
      remember(id, t)
      finish(id, { outcome = 'dead', why = UNKNOWN_AGENT, data = text, attempt = t.attempts, losses = t.losses + t.lone, fence = t.fence,
        start = 0, agent = h.agent, history = true }, h)
    else                                                           -- unreadable or gone: it would be in the way of the others for ever
      quarantine(id)
      call('ZREM', L .. 'want:' .. agent, id)
      call('HDEL', PARK, id)
      MARKS['want:' .. agent] = now
    end
  end
end
local function unknown_agents(after_)
  for _, agent in ipairs(call('SRANDMEMBER', B .. ':wants', 8)) do
    if not string.find(agent, '^[*@]') then                        -- alone, or a version that its workers read one day
      if known_to_somebody(agent) then call('ZREM', NOBODY, agent) else call('ZADD', NOBODY, 'NX', num(now), agent) end
    end
  end
  local old = call('ZRANGE', NOBODY, 0, 7, 'WITHSCORES')
  if #old > 0 then call('PEXPIRE', NOBODY, num(math.max(60000, 2 * after_))) end -- for when nobody sweeps any more
  for i = 1, #old, 2 do
    if call('SISMEMBER', B .. ':wants', old[i]) == 0 then call('ZREM', NOBODY, old[i])
    elseif after_ > 0 and now - tonumber(old[i + 1]) >= after_ and not known_to_somebody(old[i]) then bury_unknown(old[i]) end
  end
end
