-- lines: the tasks parked at a gate, by place; joined and left in Lua, written once at the end.
-- B:l:<gate>  zset     B:park  id -> u8 priority | u8 moves | gate     B:ready:<priority>  gates worth a look, by due ms
local LINE_ADD, LINE_REM, PARKED, UNPARKED = {}, {}, {}, {}        -- PARKED: id, value, id, value...

local function park(g, h, id, wait, moves)
  if string.find('srtc', g.kind, 1, true) then count('h:' .. g.kind, 1) end -- a limit was hit
  local a = LINE_ADD[g.name] or {}
  a[#a + 1], a[#a + 2] = num(h.place), id
  LINE_ADD[g.name], PARKED[#PARKED + 1], PARKED[#PARKED + 2] = a, id, pack('>BB', h.prio, math.min(moves or 0, 255)) .. g.name
  if not g.head or h.place < g.head then
    g.head = h.place
    if wait then MARKS[g.name] = math.min(MARKS[g.name] or math.huge, now + math.ceil(wait / 1000)) end
  end
end
local function leave_line(name, id)
  local r = LINE_REM[name] or {}
  r[#r + 1], LINE_REM[name], UNPARKED[#UNPARKED + 1] = id, r, id
end
-- Takes back what this script has parked and not written yet; true if it had.
local function unpark(id)
  for i = 1, #PARKED, 2 do
    if PARKED[i] == id then
      local name = string.sub(PARKED[i + 1], 3)
      local a = LINE_ADD[name]
      for k = #a, 2, -2 do if a[k] == id then table.remove(a, k) table.remove(a, k - 1) end end
      if #a == 0 then LINE_ADD[name] = nil end
      table.remove(PARKED, i + 1)
      table.remove(PARKED, i)
      return true
    end
  end
end
-- The smallest place among those who joined a line in this script.
local function joined(name)
  local first = nil
  for i = 1, #(LINE_ADD[name] or {}), 2 do first = math.min(first or math.huge, tonumber(LINE_ADD[name][i])) end
  return first
end

-- Puts a gate where claims look for it: under its head's priority, by due ms; out of sight when its line is empty, or when
-- `due` is false (no room: whoever frees some marks it again).
local function mark(name, due)
  local first = call('ZRANGE', L .. name, 0, 0)[1]
  local want = string.match(name, '^want:(.*)$')
  if want then call(first and 'SADD' or 'SREM', B .. ':wants', want) return end
  local prio = first and due and string.byte(call('HGET', PARK, first) or '\5')
  for _, p in ipairs(PRIOS) do                                     -- its head may have had another priority
    if p == prio then call('ZADD', B .. ':ready:' .. p, num(due), name) else call('ZREM', B .. ':ready:' .. p, name) end
  end
end
local function gates_flush()
  for name, ids in pairs(LINE_REM) do call('ZREM', L .. name, unpack(ids)) end
  if #UNPARKED > 0 then call('HDEL', PARK, unpack(UNPARKED)) end
  if #PARKED > 0 then call('HSET', PARK, unpack(PARKED)) end
  for name, members in pairs(LINE_ADD) do
    call('ZADD', L .. name, unpack(members))
    if string.sub(name, 1, 5) == 'want:' then MARKS[name] = now end
  end
  for name, g in pairs(GATES) do
    for _, r in ipairs(g.windows or NO_GATES) do rate_flush(r) end
    if g.budget and g.dirty then budget_flush(g)
    elseif g.dirty then
      if g.used == 0 and not g.rp then call('DEL', G .. name)
      else call('SET', G .. name, pack('>d', g.used) .. (g.rp and pack('>d', g.rp) .. g.ri or '')) end
      if g.rp or g.had then call(g.rp and 'SADD' or 'SREM', RESERVED, name) end
    end
  end
  for name, due in pairs(MARKS) do mark(name, due) end
end
