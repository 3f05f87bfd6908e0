-- pauses: what an operator holds back. B:paused  hash: what -> f64 until ms (0: until it is resumed) | why; what is one of
--   *   q/<queue>   a/<agent>   t/<tenant>     and its gate is p/ and that
-- A paused queue's streams are not live, so that its backlog is not parked task by task; what comes another way is parked once.
local PAUSED, PAUSES, PAUSE_ENDS = B .. ':paused', nil, nil

local function wake_streams(queue)
  for _, p in ipairs(PRIOS) do
    if call('XLEN', stream_of(queue, p)) > 0 then call('ZADD', B .. ':live:' .. p, 'NX', 0, queue) end
  end
end
local function resume(what)
  call('HDEL', PAUSED, what)
  MARKS['p/' .. what], RING = now, true
  local queue = string.match(what, '^q/(.*)$')
  for _, q in ipairs(what == '*' and call('SMEMBERS', B .. ':qs') or { queue }) do wake_streams(q) end
end
-- what is paused now; those whose time has come are resumed
local function pauses()
  if PAUSES then return PAUSES end
  PAUSES = {}
  local all = call('HGETALL', PAUSED)
  for i = 1, #all, 2 do
    local ok, till = pcall(unpack_, '>d', all[i + 1])
    if not ok or (till > 0 and till <= now) then resume(all[i])
    else
      PAUSES[all[i]] = till
      if till > 0 then PAUSE_ENDS = math.min(PAUSE_ENDS or till, till) end
    end
  end
  return PAUSES
end
-- the pause that holds a task back, and until when
local function paused(queue, agent, tenant)
  local all = pauses()
  if not next(all) then return end
  for _, what in ipairs({ '*', 'q/' .. queue, 'a/' .. agent, 't/' .. tenant }) do
    if all[what] then return what, all[what] end
  end
end
