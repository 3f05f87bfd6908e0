-- book: the compiled rules. B:book field `masks` lists the match masks in use, most specific first, each a subset of `qat`
-- (queue, agent, tenant; empty = match all); field `<mask>/<values joined by />` lists rules `kind:a:b` joined by `;`:
--   s:<cap>  slots        r:<limit>:<window ms>  trailing window
-- Of a kind the most specific rule wins; a match-all rule is a global cap and always applies as well.
-- Gates come back in the fixed order slots before rates, then by name: reservation relies on it.
local BOOK_MASKS, BOOK_SEEN, NO_GATES = nil, {}, {}
local function book_gates(h)
  if not BOOK_MASKS then
    BOOK_MASKS = {}
    for m in string.gmatch(call('HGET', B .. ':book', 'masks') or '', '[^,]+') do BOOK_MASKS[#BOOK_MASKS + 1] = m end
  end
  if #BOOK_MASKS == 0 then return NO_GATES end
  local tuple = h.queue .. '/' .. h.agent .. '/' .. h.tenant
  if BOOK_SEEN[tuple] then return BOOK_SEEN[tuple] end
  local part, fields = { q = h.queue, a = h.agent, t = h.tenant }, {}
  for i, m in ipairs(BOOK_MASKS) do
    local v = {}
    for d in string.gmatch(m, '[qat]') do v[#v + 1] = part[d] end
    fields[i] = m .. '/' .. table.concat(v, '/')
  end
  local found, gates, taken = call('HMGET', B .. ':book', unpack(fields)), {}, {}
  for i, rules in ipairs(found) do
    for kind, a, b in string.gmatch(rules or '', '(%a):(%d+):?(%d*)') do
      local global = BOOK_MASKS[i] == '*'
      if global or not taken[kind] then
        taken[kind] = taken[kind] or not global
        gates[#gates + 1] = { name = kind .. '/' .. fields[i], kind = kind, cap = tonumber(a), window = (tonumber(b) or 0) * 1000 }
      end
    end
  end
  table.sort(gates, function(x, y)
    if x.kind ~= y.kind then return x.kind == 's' end
    return x.name < y.name
  end)
  BOOK_SEEN[tuple] = gates
  return gates
end
-- the units a task takes of a gate: slots count tasks, rates count cost
local function units_of(rule, h) if rule.kind == 'r' then return math.max(1, h.cost) end return 1 end
