-- pending: entries that were handed over, by worker.
-- A pending entry that no row speaks for (a script died half-way, a reply was never acted on): its task goes first, if the
-- entry was its only place.
local function put_back(gen, id)
  local env = call('GETRANGE', J .. id, 0, 4)
  if ENDED[string.sub(env, 1, 1)] or string.sub(env, 2) ~= gen then return end
  local state, h = where(id)
  if state == 'queued' and h then into_first(h, id) elseif state == 'queued' then quarantine(id) end
end
-- Pending entries of a worker, at most `most`, from a cursor {stream number, entry} on: calls see(stream, entry, gen, id), without
-- the last two when the entry's body is gone. Returns the cursor to go on from, or nothing after the last.
local function pending_of(worker, from, most, see)
  local keys, queues = { FIRST, LINE }, call('SMEMBERS', B .. ':qs')
  table.sort(queues)
  for _, q in ipairs(queues) do
    for _, p in ipairs(PRIOS) do keys[#keys + 1] = stream_of(q, p) end
  end
  local entry = from[2]
  for k = from[1], #keys do
    local p = redis.pcall('XPENDING', keys[k], 'w', entry, '+', most, worker)
    for i = 1, p.err and 0 or #p do
      local x = call('XRANGE', keys[k], p[i][1], p[i][1])[1]
      see(keys[k], p[i][1], x and x[2][1], x and x[2][2])
      most = most - 1
      if most == 0 then return { k, '(' .. p[i][1] } end
    end
    entry = '-'
  end
end
