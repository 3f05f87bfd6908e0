-- row: B:run, id -> what a running delivery is and has taken. Every release reads only this, never the rules of the moment.
--   f64 fence | f64 started ms | u16 attempt | u16 max | u8 priority | u8 flags | u8 marks | u8 stream (q its own, f first, l line)
--   | str8 entry | str8 queue | str8 agent | str8 worker | (f64 units, u8 what the loss of the run costs, for a budget: C R F; else -, str16 gate)*
-- A fence travels as its 8 bytes, so that "is it current" is one comparison.
local ROW, ROW_HEAD = '>dHHBBBc1Bc0Bc0Bc0Bc0', '>dHHBBBc1Bc0'
local ROW_CANCEL, ROW_HISTORY, ROW_LONE, ROW_TAKEN, ROW_BUDGET, ROW_MARKS = 1, 2, 4, 8, 16, 23 -- marks; the byte that they are
local function row_fence(row) return string.sub(row, 1, 8) end
local function fence_number(f) return (unpack_('>d', f)) end
-- queue, agent and worker: the same for many rows of a claim
local function row_tail(queue, agent, worker)
  return pack('>Bc0Bc0Bc0', #queue, queue, #agent, agent, #worker, worker)
end
local function row_pack(fence, start, attempt, max, prio, flags, marks, src, entry, tail, taken)
  return fence .. pack('>dHHBBBc1Bc0', start, attempt, max, prio, flags, marks, src, #entry, entry) .. tail .. taken
end
-- Nothing when it cannot be read: such a row speaks for nobody.
local function row_read(row)
  local ok, start, attempt, max, prio, flags, marks, src, entry, queue, agent, worker, taken = pcall(unpack_, ROW, row, 9)
  if not ok then return end
  return { fence = row_fence(row), start = start, attempt = attempt, max = max, prio = prio, flags = flags, marks = marks,
    src = src, entry = entry, worker = worker, queue = queue, agent = agent, taken = string.sub(row, taken) }
end
-- { queue, agent, taken } of a row whose tail begins at `at`; tails of rows that took nothing are looked up
local TAILS = {}
local function tail_of(row, at, marks)
  local tail = string.sub(row, at)
  local t = TAILS[tail]
  if t then return t end
  local ok, queue, agent, _, taken = pcall(unpack_, '>Bc0Bc0Bc0', tail)
  if not ok then return end
  t = { queue, agent, string.sub(tail, taken) }
  if not has(marks, ROW_TAKEN) then TAILS[tail] = t end
  return t
end
local function row_taken(taken)
  local list, o, units, loss, name = {}, 1, nil, nil, nil
  while o <= #taken do
    units, loss, name, o = unpack_('>dc1Hc0', taken, o)
    list[#list + 1] = { name = name, units = units, loss = loss }
  end
  return list
end
