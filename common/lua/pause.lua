-- pause: holds back a queue, an agent, a tenant, or everything, perhaps until a time; or lets it go on. Moves no task: claims meet it.
-- ARGV: what (*, q/<queue>, a/<agent>, t/<tenant>) | ms from now, 0: until it is resumed, '': resume it | why
-- Reply: 1 | 0: there was nothing to resume | -1: there are as many pauses as there may be
local PAUSES_MAX = 256
local what, ms = ARGV[1], tonumber(ARGV[2])
if ms then
  if call('HEXISTS', PAUSED, what) == 0 and call('HLEN', PAUSED) >= PAUSES_MAX then return -1 end
  local till = ms > 0 and now + ms or 0
  call('HSET', PAUSED, what, pack('>d', till) .. string.sub(ARGV[3], 1, 256))
  MARKS['p/' .. what] = till > 0 and till                          -- who waits for it already has another time to wait for
  flush()
  return 1
end
if call('HEXISTS', PAUSED, what) == 0 then return 0 end
resume(what)
flush()
return 1
