-- reclaim: running -> queued (first) | parked (alone) | dead (poison) | cancelled, for a worker whose lease has run out; a part a call.
-- First its pending entries, then rows whose entry was lost, then the worker itself is forgotten.
-- ARGV: worker | most | poison cap
-- Reply: reclaimed | done (1: nothing is left of it)
local dead, most, poison = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local score = tonumber(call('ZSCORE', W, dead) or '0')
if score > now then return { 0, 1 } end
call('ZADD', W, '0', dead)                                         -- from here on no renewal brings it back
local ids, acks, lost, unread = {}, {}, {}, {}
local function take_back(id, row)
  local how = lose(id, row, poison)
  ids[#ids + 1], lost[#lost + 1] = id, how .. ' ' .. id
end
pending_of(dead, { 1, '-' }, most, function(key, entry, gen, id)
  local row = id and call('HGET', RUN, id)
  local a = acks[key] or {}
  a[#a + 1], acks[key] = entry, a
  local r = row and row_read(row)
  if r and r.entry == entry then take_back(id, row) elseif id and not r then put_back(gen, id) end
end)
local done = 0
if next(acks) == nil then                                          -- no entry left: rows by the page, then the end
  local cursor = call('HGET', B .. ':sweep', 'rows:' .. dead) or '0'
  local page = call('HSCAN', RUN, cursor, 'COUNT', 256)
  for i = 1, #page[2], 2 do
    local r = row_read(page[2][i + 1])
    if not r then unread[#unread + 1] = page[2][i] elseif r.worker == dead then take_back(page[2][i], page[2][i + 1]) end
  end
  call('HSET', B .. ':sweep', 'rows:' .. dead, page[1])
  if page[1] == '0' then
    done = 1
    forget_worker(dead)
  end
end
for _, id in ipairs(unread) do                                     -- nobody's; its task, if there is one, begins anew
  call('HDEL', RUN, id)
  local state, h = where(id)
  if state == 'queued' and h then into_first(h, id) end
end
if #ids > 0 then
  call('HDEL', RUN, unpack(ids))
  log_event('reclaim', dead .. '\n' .. table.concat(lost, '\n'))
  count('o:reclaimed', #ids)
end
for key, entries in pairs(acks) do call('XACK', key, 'w', unpack(entries)) call('XDEL', key, unpack(entries)) end
flush() finish_flush()
return { #ids, done }
