-- status: where a task is, what holds it back, and how it ended. Reads only, but for a waiter that asks to be woken at the end.
-- A row of waiters is bounded; who finds no room in it looks for itself every few seconds, as all waiters do.
-- ARGV: id | client to wake ('' : nobody)
-- Reply: state | gate | attempt | losses | fence | due ms | started ms | ended ms | error | data | envelope header | worker | agent | progress
local id, client = ARGV[1], ARGV[2]
local state, h, detail = where(id)
local t = history(call('HGET', AT, id))
local out = { state, '', t.attempts, t.losses + t.lone, '0', '0', '0', '0', t.error, '', '', '', h and h.agent or '', '' }
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
  local _, fence, attempt, start, at = unpack_(OUTCOME_FMT, ended)
  out[3], out[5], out[7], out[8], out[10] = attempt, num(fence_number(fence)), num(start), num(at), string.sub(ended, 28)
end
local waiting = state == 'running' or state == 'queued' or state == 'parked' or state == 'scheduled'
if client ~= '' and waiting then
  local who = call('HGET', B .. ':waits', id)
  if not who then call('HSET', B .. ':waits', id, client)
  elseif #who < 1024 and not string.find(',' .. who .. ',', ',' .. client .. ',', 1, true) then call('HSET', B .. ':waits', id, who .. ',' .. client) end
end
return out
