-- tune: how many tasks workers run at once, changed while they run; kept for those that come later. Moves no task. Workers hear of it at
-- their next renewal, which they are told to hurry.
-- B:tune  hash: * | w/<worker's name> | a/<agent> (on each worker) -> most tasks at once
-- ARGV: which | number, '': as each worker's own options say. Reply: 1 | -1: there are as many as there may be
local TUNE, TUNES_MAX = B .. ':tune', 256
if ARGV[2] == '' then call('HDEL', TUNE, ARGV[1])
else
  if call('HEXISTS', TUNE, ARGV[1]) == 0 and call('HLEN', TUNE) >= TUNES_MAX then return -1 end
  call('HSET', TUNE, ARGV[1], ARGV[2])
end
for _, w in ipairs(call('ZRANGEBYSCORE', W, num(now), '+inf', 'LIMIT', 0, 1000)) do
  call('RPUSH', B .. ':ctl:' .. w, 'renew')
  call('PEXPIRE', B .. ':ctl:' .. w, 60000)
end
return 1
