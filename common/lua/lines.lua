-- lines: the gates at which tasks wait, a page of waiting tasks at a time, for people. Reads only.
-- ARGV: cursor
-- Reply: next cursor (0: done) | (gate, tasks in its line, units in use, when it is looked at next, ms)*
local page, seen = call('HSCAN', PARK, ARGV[1], 'COUNT', 512), {}
local out = { page[1] }
for i = 1, #page[2], 2 do
  local name = string.sub(page[2][i + 1], 3)
  if not seen[name] then
    seen[name] = true
    local state, due, n = string.sub(name, 1, 2) == 's/' and call('GET', G .. name), 0, #out
    for _, p in ipairs(PRIOS) do due = due == 0 and tonumber(call('ZSCORE', B .. ':ready:' .. p, name) or '0') or due end
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = name, call('ZCARD', L .. name), state and #state >= 8 and unpack_('>d', state) or 0, due
  end
end
return out
