-- fire: (none) -> queued | scheduled | parked: the task of a schedule's slot, once, whoever comes first; or leaves the slot out.
-- ARGV: name | slot ms that is expected | revision in 8 bytes | ms of the next slot | ms of the slot to fire, '': none
--   | slots missed and left out | 1: not while its last task has not ended | the task, as accept reads it
-- Reply: stale (somebody was quicker, or it was changed) | left | overlap | the reply to the task, and its id
local name, slot, next_slot, fires, missed = ARGV[1], tonumber(ARGV[2]), ARGV[4], tonumber(ARGV[5]), ARGV[6]
local value = call('HGET', B .. ':cron', name)
if not value or string.sub(value, 1, 8) ~= ARGV[3] then return { 'stale', '' } end
if tonumber(call('ZSCORE', B .. ':cz', name) or '-1') ~= slot then return { 'stale', '' } end

local function over(id)
  local state = where(id)
  return not (state == 'queued' or state == 'scheduled' or state == 'parked' or state == 'running')
end
local what, id = 'left', ''
local last = call('HGET', B .. ':cl', name)
if fires and ARGV[7] == '1' and last and not over(string.sub(last, 9)) then what = 'overlap'
elseif fires then
  id = ARGV[8]
  what = accept(8, 1, 0)[1]
  if what == 'q' then call('HSET', B .. ':cl', name, pack('>d', fires) .. id) end
end
call('ZADD', B .. ':cz', next_slot, name)
count('c:' .. (what == 'q' and 'fired' or what == 'left' and 'left' or what == 'overlap' and 'overlap' or 'refused'), 1)
if missed ~= '0' then count('c:missed', tonumber(missed)) end
log_event('slot', table.concat({ name, num(fires or slot), what, id, missed }, '\n'))
flush() finish_flush()
return { what, id }
