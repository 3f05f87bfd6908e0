-- gate: a gate and its line, for people: who holds it, and who waits. Reads only; of very many running tasks it looks at some.
-- ARGV: gate | id
-- Reply: tasks in its line | that task's place in it, from 1 (0: none) | the first in line | when it is looked at next, ms (0: when
--   something is given back) | units in use | whom it is reserved for | all that run were looked at (0/1)
--   | of a budget (ms, limit, charged, debt, end of the period ms)*, as a list | (holder, units)*
local ROWS_MAX, HOLDERS_MAX = 2048, 8
local name, id = ARGV[1], ARGV[2]
local order = string.match(name, '^order:(.*)$')
local line = order and O .. order or L .. name
local rank = call('ZRANK', line, id)
local out = { call('ZCARD', line), rank and rank + 1 or 0, call('ZRANGE', line, 0, 0)[1] or '', 0, 0, '', 1, {} }
for _, p in ipairs(PRIOS) do out[4] = out[4] == 0 and tonumber(call('ZSCORE', B .. ':ready:' .. p, name) or '0') or out[4] end
local kind = string.sub(name, 1, 2)
local state = kind == 's/' and call('GET', G .. name)
if state and #state >= 8 then out[5], out[6] = unpack_('>d', state), string.sub(state, 17) end
if kind == 't/' or kind == 'c/' then
  for i, w in ipairs(budget_read({ name = name })) do
    if w.ms > 0 then buckets_roll(w) elseif now >= w.cursor then w.sum = 0 end
    for k, v in ipairs({ num(w.ms), w.limit, w.sum, w.debt, w.ms > 0 and 0 or w.cursor }) do out[8][5 * i - 5 + k] = v end
  end
end
if out[5] > 0 or #out[8] > 0 then
  local cursor, seen = '0', 0
  repeat
    local page = call('HSCAN', RUN, cursor, 'COUNT', 256)
    cursor, seen = page[1], seen + #page[2] / 2
    for i = 1, #page[2], 2 do
      local r = row_read(page[2][i + 1])
      for _, t in ipairs(r and row_taken(r.taken) or {}) do
        if t.name == name and #out < 8 + 2 * HOLDERS_MAX then out[#out + 1], out[#out + 2] = page[2][i], t.units end
      end
    end
  until cursor == '0' or seen >= ROWS_MAX
  out[7] = cursor == '0' and 1 or 0
end
return out
