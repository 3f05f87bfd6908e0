-- turns: in which order a claim asks its sources.

local DRY = {}                                                     -- priorities of which this claim has seen the end

-- The lines of agents that this claim offers; true when there is no such line at all.
local function take_wanted(k)
  if not C.odd or call('EXISTS', B .. ':wants') == 0 then return true end
  local names, stop = {}, C.n + k
  for agent, room in pairs(C.rooms) do if room > 0 then names[#names + 1] = agent end end
  if #names == 0 then return end
  for i, waits in ipairs(call('SMISMEMBER', B .. ':wants', unpack(names))) do
    local name = 'want:' .. names[i]
    while waits == 1 and not C.blocked[name] and C.rooms[names[i]] > 0 and C.n < math.min(stop, C.most) and C.looks > 0 do
      take_line(name, math.min(C.rooms[names[i]], stop - C.n))
    end
  end
end

-- Up to `quota` tasks of a priority: its ready lines and its live streams in turn, the least recently served first.
local function take_priority(prio, quota)
  local stop, live, ready = math.min(C.n + quota, C.most), B .. ':live:' .. prio, B .. ':ready:' .. prio
  while C.n < stop and C.looks > 0 and C.ghosts > 0 do
    local gates, queues = {}, call('ZRANGE', live, 0, 7)
    for _, g in ipairs(C.odd and call('ZRANGEBYSCORE', ready, '-inf', num(now), 'LIMIT', 0, 8 + C.nblocked) or {}) do
      if not C.blocked[g] then gates[#gates + 1] = g end
    end
    local sources = #gates + #queues
    if sources == 0 then DRY[prio] = true return end
    local emptied = 0
    local chunk = math.max(1, math.ceil((stop - C.n) / sources))
    for i = 1, math.max(#gates, #queues) do
      if gates[i] and C.n < stop and C.looks > 0 then take_line(gates[i], math.min(chunk, stop - C.n)) end
      if queues[i] and C.n < stop and C.looks > 0 then
        local empty = C.held and pauses()['q/' .. queues[i]] or take_stream(stream_of(queues[i], prio), 'q', math.min(chunk, stop - C.n))
        if empty then
          emptied = emptied + 1
          call('ZREM', live, queues[i])
        elseif #queues > 1 then call('ZADD', live, num(us), queues[i]) end
      end
    end
    if emptied == sources and emptied < 8 then DRY[prio] = true return end
  end
end
