-- nudge: ends a read on a control list: its reader hears a ring, and may listen anew. A script, so that it may be sent when memory
-- is full; a worker that cannot wake its own ear would miss rings for as long as one read takes. ARGV: whose list. Reply: 1
local list = B .. ':ctl:' .. ARGV[1]
call('RPUSH', list, 'ring')
call('PEXPIRE', list, 60000)
return 1
