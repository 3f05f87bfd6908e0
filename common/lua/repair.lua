-- repair: makes anew what can be known from elsewhere: which streams have unread entries, and how many tasks wait. What is looked at
-- from outside is counted only if nothing has moved in between: whatever moves a task changes B:n.
-- ARGV: live                                       marks the streams that have entries; reply: how many were not marked
--       stamp                                      reply: the stamp of B:n as it is
--       count | stamp | (counter, waiting tasks)*  those counters, and no others of waiting tasks, if the stamp is still that;
--                                                  reply: how many were wrong, or -1: it is another one
local function all_counts()                                        -- bounded: 256 queues
  local list, all = call('HGETALL', N), {}
  for i = 1, #list, 2 do all[list[i]] = list[i + 1] end
  return all, redis.sha1hex(table.concat(list, '\n'))
end
if ARGV[1] == 'live' then
  local added = 0
  for _, queue in ipairs(call('SMEMBERS', B .. ':qs')) do
    for _, p in ipairs(PRIOS) do
      if redis.pcall('XLEN', stream_of(queue, p)) ~= 0 then added = added + call('ZADD', B .. ':live:' .. p, 'NX', 0, queue) end
    end
  end
  RING = true
  ring()
  return added
end
local counts, stamp = all_counts()
if ARGV[1] == 'stamp' then return stamp end
if ARGV[2] ~= stamp then return -1 end
local right, wrong = {}, 0
for i = 3, #ARGV, 2 do right[ARGV[i]] = ARGV[i + 1] end
for field, n in pairs(counts) do
  if string.sub(field, 1, 2) == 'w:' and (right[field] or '0') ~= n then
    call('HSET', N, field, right[field] or '0')
    wrong = wrong + 1
  end
end
for field, n in pairs(right) do
  if not counts[field] then call('HSET', N, field, n) wrong = wrong + 1 end
end
return wrong
