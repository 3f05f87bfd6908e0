-- renew: a worker's lease, for all that it runs at once. A worker that was given up is told so and never comes back to life.
-- ARGV: worker | lease ms | ms the sweep may be held | 1 to begin | offered agents `,a,b,` | schema
-- Reply: alive (0/1) | now ms | holds the sweep (0/1) | lone work waits (0/1) | most tasks at once, '': as it likes | (agent, most)*
local me, lease, begin = ARGV[1], tonumber(ARGV[2]), ARGV[4] == '1'
local score = tonumber(call('ZSCORE', W, me) or (begin and '1' or '0'))
if score <= 0 then
  call('ZADD', W, 'NX', 0, me)                                     -- also when its lease was deleted: what it ran is reclaimed
  return { 0, now, 0, 0, '' }
end
call('ZADD', W, num(now + lease), me)
if begin then
  call('HSET', B .. ':wa', me, ARGV[5])
  call('HSETNX', B .. ':meta', 'schema', ARGV[6])                  -- the server may have lost all since we connected
end
local sweep = call('HMGET', B .. ':sweep', 'holder', 'until', 'beat')
-- Nobody has renewed for three quarters of a lease: the server was away, or everybody was. All leases look run out; those who
-- live get half a lease to say so.
local beat = tonumber(sweep[3] or num(now))
call('HSET', B .. ':sweep', 'beat', num(now), unpack(now - beat > lease * 3 / 4 and { 'grace', num(now + math.floor(lease / 2)) } or {}))
local till = tonumber(sweep[2] or '0') or 0
local mine, may = sweep[1] == me, ARGV[3] ~= '0'
local held = may and (mine or till < now or till > now + tonumber(ARGV[3]))
-- Only sweeping makes the hold longer: a worker that renews and does not hear the answers would keep it from all others.
if held and not mine then call('HSET', B .. ':sweep', 'holder', me, 'until', num(now + tonumber(ARGV[3]))) end
local out = { 1, now, held and 1 or 0, call('EXISTS', L .. 'want:*'), '' }
local tune = call('HGETALL', B .. ':tune')                         -- bounded, by tune.lua
for i = 1, #tune, 2 do
  local agent = string.match(tune[i], '^a/(.*)$')
  if agent then out[#out + 1], out[#out + 2] = agent, tune[i + 1]
  elseif tune[i] == 'w/' .. (string.match(me, '^(.*)%.') or '') or (tune[i] == '*' and out[5] == '') then out[5] = tune[i + 1] end
end
return out
