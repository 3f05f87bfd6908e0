-- gates: state is read once a script, decided in Lua, written once at the end (gates_flush), so that an error half-way leaves
-- nothing in two places. Kinds by the first letter of the name: s/ slots, r/ rate, t/ tokens, c/ money, want: no worker for the agent,
-- p/ a pause.
-- B:g:<slot gate>  f64 units in use, then for a reservation f64 place | id         B:g:<rate gate>#<window ms>  see rate
-- B:reserved       slot gates with a reservation: a new book ends them all, since they were made by the old one's rules
local GATES, MARKS, LINES = {}, {}, nil                            -- name -> gate; name -> due ms, or false: no room (lines); any line?
local MOVES_MAX, RESERVED = 32, B .. ':reserved'

local function gate(name)
  local g = GATES[name]
  if g then return g end
  g = { name = name, kind = string.sub(name, 1, 1) }
  if LINES == nil then LINES = call('EXISTS', PARK) == 1 end       -- mostly nobody is in any line
  g.head = LINES and tonumber(call('ZRANGE', L .. name, 0, 0, 'WITHSCORES')[2]) or nil
  if g.kind == 's' then
    local s = fetch(G .. name)
    g.used = s and #s >= 8 and unpack_('>d', s) or 0
    if s and #s > 16 then g.rp, g.ri = unpack_('>d', s, 9), string.sub(s, 17) end
    g.had = g.rp
    if g.rp and call('HEXISTS', PARK, g.ri) == 0 then              -- whoever it was for is gone
      g.rp, g.ri, g.dirty, MARKS[name], RING = nil, nil, true, now, true
    end
  end
  GATES[name] = g
  return g
end
-- the keys of the gates that these tasks need, of which the script has not asked yet
local function fetch_gates(needs_of_tasks)
  local keys = {}
  for _, needs in ipairs(needs_of_tasks) do
    for i = 1, #needs do
      local name = needs[i].name
      if not GATES[name] and needs[i].kind ~= 'r' then keys[#keys + 1] = G .. name
      elseif not GATES[name] then for _, w in ipairs(needs[i].rule.w) do keys[#keys + 1] = G .. name .. '#' .. w[2] end end
    end
  end
  if #keys > 1 then fetch_all(keys) end
end
-- the same for what rows say was taken
local function fetch_held(rows)
  local keys = {}
  for _, row in ipairs(rows) do
    local r = row and string.byte(row, ROW_MARKS) >= ROW_TAKEN and row_read(row)
    for _, t in ipairs(r and row_taken(r.taken) or NO_GATES) do
      if string.sub(t.name, 1, 1) ~= 'r' then keys[#keys + 1] = G .. t.name end
    end
  end
  if #keys > 1 then fetch_all(keys) end
end
local refused
do
local function windows(g, rule)
  if not g.windows then
    g.windows = {}
    for i, w in ipairs(rule.w) do g.windows[i] = rate_load(G .. g.name .. '#' .. w[2], w[1], w[2] * 1000) end
  end
  return g.windows
end

-- us until a rate lets so many units start: every window has to have room. 0: now, -1: never.
local function rate_refuses(g, rule, units)
  local longest = 0
  for i, r in ipairs(windows(g, rule)) do
    local wait = rate_wait(r, units)
    if wait == -1 then return -1 end
    if i == 1 and rule.b then wait = math.max(wait, pace_wait(r, units, rule.b)) end
    longest = math.max(longest, wait)
  end
  return longest
end
-- The first gate that refuses, and for a rate the us to wait (-1, for any: never). `own` is the line whose head this task is.
function refused(needs, h, id, own)
  for i = 1, #needs do
    local need, g = needs[i], gate(needs[i].name)
    local units = units_of(need, h)
    if need.cap and units > need.cap then return g, -1 end
    if g.name ~= own and g.head and g.head < h.place and units > 0 then return g end
    if g.rp and g.rp < h.place and g.ri ~= id then return g end
    if need.kind == 's' then
      if g.used + units > need.cap then return g end
    else
      local wait = (need.kind == 'r' and rate_refuses or budget_refuses)(g, need.rule, units)
      if wait ~= 0 then return g, wait end
    end
  end
end
end
-- The gate that could never let it through, whatever ends or passes.
local function never(needs, h)
  for i = 1, #needs do
    local units, most = units_of(needs[i], h), needs[i].cap or math.huge
    for _, w in ipairs(needs[i].rule.w or NO_GATES) do most = math.min(most, w[1]) end
    if units > most then return needs[i].name end
  end
end
-- Takes all gates of an admitted task; the answer, and the marks that say so, are written into its row.
local function take(needs, h, id)
  local taken, marks = {}, ROW_TAKEN
  for i = 1, #needs do
    local g, loss = gate(needs[i].name), '-'
    local units = units_of(needs[i], h)
    if g.kind == 's' then
      g.used, g.dirty = g.used + units, true
      if g.ri == id then g.rp, g.ri, MARKS[g.name], RING = nil, nil, now, true end
    elseif g.kind == 'r' then for _, r in ipairs(g.windows) do rate_take(r, units) end
    else
      loss, marks = needs[i].rule.l or 'C', ROW_TAKEN + ROW_BUDGET
      budget_take(g, needs[i].rule, units)
    end
    taken[i] = pack('>dc1Hc0', units, loss, #g.name, g.name)
  end
  return table.concat(taken), marks
end
