-- close: the end of a claim; everything that it decided is written here, and its answer kept for a second asking.

local claim_close, replay
do
-- Tasks pulled from lines are pending entries as well: added before, read here. Any other entry is a leftover.
local function read_pulled()
  local left = 0
  for _ in pairs(C.pulled) do left = left + 1 end
  while left > 0 do
    local es = read_new(LINE, left + 16)
    if #es == 0 then break end
    for _, e in ipairs(es) do
      if C.pulled[e[1]] then left = left - 1 else drop(LINE, e[1]) put_back(e[2][1], e[2][2]) end
    end
  end
end

-- When something becomes due next, or is resumed; while all is paused nothing else counts.
local function due_or_resumed()
  if not C.held then return next_due() end
  local due, ends = pauses()['*'] and 0 or next_due(), PAUSE_ENDS or 0
  if due == 0 or ends == 0 then return math.max(due, ends) end
  return math.min(due, ends)
end

function claim_close(seq)
  read_pulled()
  if C.n > 0 then
    call('HSET', RUN, unpack(C.run))
    call('HSET', N, 'fence', num(C.fence + C.n - 1))
    call('HSET', B .. ':op', 'c:' .. C.me, pack('>dd', seq, C.fence) .. table.concat(C.ids, ' '))
  end
  for waits, d in pairs(C.waits) do count(waits, d) count('t' .. string.sub(waits, 2), -d) end
  write()
  for key, entries in pairs(C.acks) do call('XACK', key, 'w', unpack(entries)) call('XDEL', key, unpack(entries)) end
  finish_flush()
  -- whoever got less than it asked for sleeps; one that was cut short is to ask again at once, since a ring may wake one who cannot
  call(C.n < C.most and not C.lone and 'SADD' or 'SREM', IDLE, C.me)
  if C.n >= C.most then RING = true end
  for name in pairs(LINE_ADD) do
    local agent = string.match(name, '^want:([^*].*)$')
    if agent then ring_able(agent, C.me) end
  end
  ring()
  C.out[3], C.out[4] = due_or_resumed(), C.held and pauses()['*'] and 0 or call('EXISTS', L .. 'want:*')
  C.out[5] = C.n < C.most and (C.looks <= 0 or C.ghosts <= 0) and 1 or 0
  return C.out
end

-- The same sequence again: the same deliveries, as far as they are still current. A lower one is stale.
function replay(me, seq)
  local op = call('HGET', B .. ':op', 'c:' .. me)
  if not op then return end
  local last, fence, o = unpack_('>dd', op)
  if seq < last then return { 'stale' } end
  if seq > last then return end
  local ids, out = {}, { 'ok', now, 0, 0, 1 }
  for id in string.gmatch(string.sub(op, o), '%S+') do ids[#ids + 1] = id end
  local rows = call('HMGET', RUN, unpack(ids))
  for i, id in ipairs(ids) do
    local env, f = call('GET', J .. id), pack('>d', fence + i - 1)
    if env and rows[i] and row_fence(rows[i]) == f then
      local r, t = row_read(rows[i]), history(call('HGET', AT, id))
      for _, v in ipairs(r and { id, f, r.attempt, t.losses + t.lone, env } or {}) do out[#out + 1] = v end
    end
  end
  out[3], out[4] = next_due(), call('EXISTS', L .. 'want:*')
  return out
end
end
