-- leave: a worker that has settled or handed back all it ran says goodbye; one that still owns something is left to reclaim.
-- ARGV: worker. Reply: 1 gone | 0 it still owns deliveries
local owns = false
pending_of(ARGV[1], { 1, '-' }, 1, function() owns = true end)
if owns then return 0 end
forget_worker(ARGV[1])
local s = call('HGET', B .. ':sweep', 'holder')
if s == ARGV[1] then call('HSET', B .. ':sweep', 'until', '0') end
RING = true
flush()
return 1
