-- status: where a task is, what holds it back, and how it ended. Reads only, but for a waiter that asks to be woken at the end.
-- A row of waiters is bounded; who finds no room in it looks for itself every few seconds, as all waiters do.
-- ARGV: id | client to wake ('' : nobody)
-- Reply: state | gate | attempt | losses | fence | due ms | started ms | ended ms | why it is dead | data | envelope header | worker | agent
--   | progress | replays | errors, as history keeps them
local id, client = ARGV[1], ARGV[2]
local state, h, detail = where(id)
local t = history(call('HGET', AT, id))
local out = { state, '', t.attempts, t.losses + t.lone, '0', '0', '0', '0', '', '', '', '', h and h.agent or '', '', t.replays, t.errors }
if h then out[11] = call('GETRANGE', J .. id, 0, h.body - 2) end
if state == 'running' then
  local r = row_read(detail)
  out[3], out[5], out[7], out[12] = r.attempt, num(fence_number(r.fence)), num(r.start), r.worker
  out[14] = call('GET', B .. ':p:' .. id) or ''
elseif state == 'parked' then out[2] = detail
elseif state == 'scheduled' then out[6] = num(tonumber(call('ZSCORE', Z, id)))
end
local ended = call('GET', (state == 'dead' and R or J) .. id)
if ended and #ended >= OUTCOME_BYTES and (state == 'succeeded' or state == 'cancelled' or state == 'expired' or state == 'dead') then
  local _, why, fence, attempt, losses, start, at, data = unpack_(OUTCOME_FMT, ended)
  out[3], out[4], out[5], out[7], out[8], out[9], out[10] = attempt, losses, num(fence_number(fence)), num(start), num(at), why, string.sub(ended, data)
elseif state == 'dead' then out[9] = 'i'                           -- put aside: it cannot be read
end
local waiting = state == 'running' or state == 'queued' or state == 'parked' or state == 'scheduled'
if client ~= '' and waiting then
  local who = call('HGET', B .. ':waits', id)
  if not who then call('HSET', B .. ':waits', id, client)
  elseif #who < 1024 and not string.find(',' .. who .. ',', ',' .. client .. ',', 1, true) then call('HSET', B .. ':waits', id, who .. ',' .. client) end
end
return out
