-- counts: what waits, runs and has ended; true at any time, with no worker alive.
-- Reply: running | scheduled | parked (in a line, or behind an order key's head) | dead | workers | idle | now
--   | (queue, priority, ms since its oldest unread entry came)*, as a list | what is paused, as a list | (field, count)* of B:n
local out = { call('HLEN', RUN), call('ZCARD', Z), call('HLEN', PARK) + math.max(0, tonumber(call('HGET', N, 'behind') or '0')), call('ZCARD', DEAD), call('ZCOUNT', W, num(now), '+inf'),
  call('SCARD', IDLE), now, {}, {} }
local ages = out[8]
for _, p in ipairs(PRIOS) do
  for _, queue in ipairs(call('ZRANGE', B .. ':live:' .. p, 0, 255)) do
    local key, last = stream_of(queue, p), '0-0'
    local groups = redis.pcall('XINFO', 'GROUPS', key)
    for i = 1, groups.err and 0 or #(groups[1] or {}), 2 do
      if groups[1][i] == 'last-delivered-id' then last = groups[1][i + 1] end
    end
    local oldest = redis.pcall('XRANGE', key, '(' .. last, '+', 'COUNT', 1)
    local ms = not oldest.err and oldest[1] and tonumber(string.match(oldest[1][1], '^%d+'))
    if ms then
      local n = #ages
      ages[n + 1], ages[n + 2], ages[n + 3] = queue, p, math.max(0, now - ms)
    end
  end
end
for i, what in ipairs(call('HKEYS', B .. ':paused')) do out[9][i] = what end -- bounded, by pause.lua
for _, v in ipairs(call('HGETALL', N)) do out[#out + 1] = v end
return out
