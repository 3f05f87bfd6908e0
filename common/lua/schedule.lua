-- schedule: sets or deletes a schedule. Moves no task. B:cron  hash: name -> f64 revision | what the store makes of it;
-- B:cz  zset: name by the ms of its next slot, unless it is paused; B:cl  hash: name -> f64 slot | id of its last task
-- ARGV: name | the schedule, '' to delete it | ms of its next slot, '': it is paused | most schedules
-- Reply: set | deleted | unknown | full
local name, value, next_slot, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local known = call('HEXISTS', B .. ':cron', name) == 1
if value == '' then
  call('HDEL', B .. ':cron', name)
  call('HDEL', B .. ':cl', name)
  call('ZREM', B .. ':cz', name)
  return known and 'deleted' or 'unknown'
end
if not known and call('HLEN', B .. ':cron') >= most then return 'full' end
call('HSET', B .. ':cron', name, pack('>d', after('seq', 1)) .. value)
if next_slot then call('ZADD', B .. ':cz', num(next_slot), name) else call('ZREM', B .. ':cz', name) end
return 'set'
