-- cancel: queued | scheduled | parked -> cancelled at once; running -> flagged, its worker told. Ended tasks stay as they are.
-- ARGV: id. Reply: cancelled | signalled | <final state> | unknown, then the state before
local id = ARGV[1]
local state, h, row = where(id)
if state == 'running' then
  local r = row_read(row)
  if not has(r.marks, ROW_CANCEL) then
    call('HSET', RUN, id, row_pack(r.fence, r.start, r.attempt, r.max, r.prio, r.flags, r.marks + ROW_CANCEL, r.src, r.entry,
      row_tail(r.queue, r.agent, r.worker), r.taken))
  end
  local list = B .. ':ctl:' .. r.worker
  call('RPUSH', list, 'cancel ' .. id .. ' ' .. num(fence_number(r.fence)))
  call('PEXPIRE', list, 60000)
  return { 'signalled', state }
end
if state ~= 'queued' and state ~= 'scheduled' and state ~= 'parked' then return { state, state } end
if not h then quarantine(id) flush_counts() return { 'dead', state } end
local t = history(call('HGET', AT, id))
lift(h, id)
count(h.waits, -1)
finish(id, { outcome = 'cancelled', attempt = t.attempts, losses = t.losses + t.lone, fence = t.fence, start = 0, agent = h.agent, history = true }, h)
flush() finish_flush()
return { 'cancelled', state }
