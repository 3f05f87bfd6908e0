-- counts: what waits, runs and has ended; true at any time, with no worker alive.
-- Reply: running | scheduled | parked (in a line, or behind an order key's head) | dead | workers | idle | now | (field, count)* of B:n
local out = { call('HLEN', RUN), call('ZCARD', Z), call('HLEN', PARK) + math.max(0, tonumber(call('HGET', N, 'behind') or '0')), call('ZCARD', DEAD), call('ZCOUNT', W, num(now), '+inf'),
  call('SCARD', IDLE), now }
for _, v in ipairs(call('HGETALL', N)) do out[#out + 1] = v end
return out
