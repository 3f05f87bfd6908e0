-- worker: the end of a worker: its consumers (only empty ones), lease, abilities, sequences and lists.
local LANES_MAX = 4
local function forget_worker(worker)
  local keys = { FIRST, LINE }
  for _, q in ipairs(call('SMEMBERS', B .. ':qs')) do
    for _, p in ipairs(PRIOS) do keys[#keys + 1] = stream_of(q, p) end
  end
  for _, key in ipairs(keys) do
    local p = redis.pcall('XPENDING', key, 'w', '-', '+', 1, worker)
    if not p.err and #p == 0 then redis.pcall('XGROUP', 'DELCONSUMER', key, 'w', worker) end
  end
  call('ZREM', W, worker)
  call('SREM', IDLE, worker)
  call('HDEL', B .. ':wa', worker)
  local ops = { 'c:' .. worker }
  for lane = 0, LANES_MAX - 1 do ops[#ops + 1] = 's:' .. worker .. ':' .. lane end
  call('HDEL', B .. ':op', unpack(ops))
  call('HDEL', B .. ':sweep', 'rows:' .. worker)
  call('DEL', B .. ':ctl:' .. worker)
end
