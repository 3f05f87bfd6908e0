-- gates: state is read once a script, decided in Lua, written once at the end (gates_flush), so that an error half-way leaves
-- nothing in two places. Kinds by the first letter of the name: s/ slots, r/ rate, want: no worker for the agent, p/ a pause.
-- B:g:<slot gate>  hash: u units in use | rp, ri place and id of a reservation
-- B:reserved       slot gates with a reservation: a new book ends them all, since they were made by the old one's rules
local GATES, MARKS = {}, {}                                        -- name -> gate; name -> due ms, or false: no room (lines)
local MOVES_MAX, RESERVED = 32, B .. ':reserved'

local function gate(name)
  local g = GATES[name]
  if g then return g end
  g = { name = name, kind = string.sub(name, 1, 1) }
  g.head = tonumber(call('ZRANGE', L .. name, 0, 0, 'WITHSCORES')[2])
  if g.kind == 's' then
    local s = call('HMGET', G .. name, 'u', 'rp', 'ri')
    g.used, g.rp, g.ri = tonumber(s[1] or '0') or 0, tonumber(s[2] or nil), s[3] or nil
    g.had = g.rp
    if g.rp and call('HEXISTS', PARK, g.ri) == 0 then              -- whoever it was for is gone
      g.rp, g.ri, g.dirty, MARKS[name], RING = nil, nil, true, now, true
    end
  end
  GATES[name] = g
  return g
end
local function window(g, rule)
  if not g.rate then g.rate = rate_load(g.name, rule.cap, rule.window) end
  return g.rate
end

-- The first gate that refuses, and for a rate the us to wait (-1: never). `own` is the line whose head this task is.
local function refused(rules, h, id, own)
  for i = 1, #rules do
    local rule, g = rules[i], gate(rules[i].name)
    if g.name ~= own and g.head and g.head < h.place then return g end
    if g.rp and g.rp < h.place and g.ri ~= id then return g end
    if g.kind == 's' then
      if g.used >= rule.cap then return g end
    else
      local wait = rate_wait(window(g, rule), units_of(rule, h))
      if wait ~= 0 then return g, wait end
    end
  end
end
-- Takes all gates of an admitted task; the answer is written into its row.
local function take(rules, h, id)
  local taken = {}
  for i = 1, #rules do
    local rule, g = rules[i], gate(rules[i].name)
    local units = units_of(rule, h)
    if g.kind == 's' then
      g.used, g.dirty = g.used + units, true
      if g.ri == id then g.rp, g.ri, MARKS[g.name], RING = nil, nil, now, true end
    else rate_take(g.rate, units) end
    taken[i] = pack('>HHc0', units, #g.name, g.name)
  end
  return table.concat(taken)
end
-- Gives back what a row says was taken and marks those gates ready.
local function give_back(taken)
  for _, t in ipairs(row_taken(taken)) do
    if string.sub(t.name, 1, 1) == 's' then
      local g = gate(t.name)
      g.used, g.dirty = math.max(0, g.used - t.units), true
      if g.head then MARKS[g.name], RING = now, true end
    end
  end
end

-- A task moved too often is reserved: its slot gates go only to smaller places until it runs.
local function reserve(rules, h, id)
  for i = 1, #rules do
    local g = gate(rules[i].name)
    if g.kind == 's' and (not g.rp or h.place < g.rp) then g.rp, g.ri, g.dirty = h.place, id, true end
  end
end
local function unreserve(rules, id)
  for i = 1, #rules do
    local g = gate(rules[i].name)
    if g.ri == id then g.rp, g.ri, g.dirty, MARKS[g.name], RING = nil, nil, true, now, true end
  end
end
