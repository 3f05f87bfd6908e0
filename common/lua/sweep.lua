-- sweep: upkeep by whoever holds it; safe on all workers at once. scheduled -> queued, waiting -> expired, old dead dropped; rings
-- when work waits and somebody sleeps (a ring may have been lost with a process). Names a worker whose lease has run out, also to
-- those who do not hold it: the holder may have died with it.
-- ARGV: worker | ms the sweep may be held | lease ms | most
-- Reply: held (0/1) | now | next due ms | expired worker or '' | full (1: call again) | ms of the next slot of a schedule, 0: none
--   | (name, slot ms, schedule)* of those whose slot has come
local me, most = ARGV[1], tonumber(ARGV[4])
local s = call('HMGET', B .. ':sweep', 'holder', 'until', 'last', 'grace')
local held_until = tonumber(s[2] or '0') or 0
local last, grace = tonumber(s[3] or num(now)), tonumber(s[4] or '0')
local function lost() return now >= grace and call('ZRANGEBYSCORE', W, '-inf', num(now), 'LIMIT', 0, 1)[1] or '' end
if s[1] and s[1] ~= me and held_until >= now and held_until <= now + tonumber(ARGV[2]) then return { 0, now, 0, lost(), 0, 0 } end
if last > now then stepped_back(tonumber(ARGV[3])) last, grace = now, 0 end
call('HSET', B .. ':sweep', 'holder', me, 'until', num(now + tonumber(ARGV[2])), 'last', num(now), 'grace', num(grace))
local promoted = promote(most)
local expired = expire(most)
drop_old_dead(16)
local dead = lost()
local due, all_held = next_due(), pauses()['*']
if all_held then due = 0 end
if PAUSE_ENDS and (due == 0 or PAUSE_ENDS < due) then due = PAUSE_ENDS end
if not all_held and (call('EXISTS', B .. ':live:20', B .. ':live:10', B .. ':live:5', B .. ':live:1') > 0 or (due > 0 and due <= now)) then
  if call('LLEN', BELL) == 0 then call('RPUSH', BELL, '1') end     -- whether or not anybody is known to sleep
end
for _, agent in ipairs(call('SRANDMEMBER', B .. ':wants', 8)) do ring_able(agent) end
flush() finish_flush()
local out = { 1, now, due, dead, (promoted >= most or expired >= most) and 1 or 0, 0 }
local slots = call('ZRANGE', B .. ':cz', 0, 7, 'WITHSCORES')
for i = 1, #slots, 2 do
  if i == 1 then out[6] = num(tonumber(slots[2])) end
  if tonumber(slots[i + 1]) <= now then
    for _, v in ipairs({ slots[i], slots[i + 1], call('HGET', B .. ':cron', slots[i]) or '' }) do out[#out + 1] = v end
  end
end
return out
