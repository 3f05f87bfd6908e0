-- submit: (none) -> queued | scheduled | parked. Safe to send twice: a task that is here, or has just ended, is a duplicate.
-- ARGV: most waiting per queue and priority (0: no bound), then the tasks as accept reads them. Replies as accept.
local n = (#ARGV - 1) / ITEM
if n > 256 or n ~= math.floor(n) then return redis.error_reply('BATCH at most 256 tasks a call, six values each') end
local out = accept(2, n, tonumber(ARGV[1]))
flush()
return out
