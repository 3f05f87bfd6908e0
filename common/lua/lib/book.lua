-- book: the compiled rules. B:book  hash: `masks` in use, the most specific first, each a subset of `qart` (queue, agent, tier,
-- tenant; `*` matches all); `parts` letters that gates depend on; `tiers` the lowest first; and for each match a field
-- `<mask>/<values joined by />`, msgpack: a list of rules as common/src/book/compile.rs writes them; `e/<agent>`: f64 tokens and f64
-- micro-dollars that its tasks are expected to use.  B:tier  hash: tenant -> tier
-- Of a kind the most specific rule wins; a match-all rule is a cap on everything and always applies as well.
-- A gate is named `<kind>/<mask>[+<parts counted apart>]/<values>`, the tenant last, since it may be any text. The tier is left out
-- where the tenant is in: a tenant that changes its tier keeps its counter.
-- Gates come in one fixed order, by kind, then by name up to the values: reservation relies on it.
local NO_GATES, book_empty, book_gates, units_of = {}, nil, nil, nil
do
local BOOK, RULES, TEMPLATES, GATES_OF = nil, {}, {}, {}
local RANK, PARTS = { s = '2', r = '3', t = '4', c = '5' }, { 'q', 'a', 'r', 't' }

local function book_open()
  local s = call('HMGET', B .. ':book', 'masks', 'parts', 'tiers')
  BOOK = { parts = s[2] or '', lowest = string.match(s[3] or '', '^[^,]*'), tiers = {} }
  for m in string.gmatch(s[1] or '', '[^,]+') do BOOK[#BOOK + 1] = m end
  for _, p in ipairs(PARTS) do BOOK[p] = string.find(BOOK.parts, p, 1, true) ~= nil end
end
local function tier_of(tenant)
  local tier = BOOK.tiers[tenant]
  if not tier then
    tier = call('HGET', B .. ':tier', tenant) or BOOK.lowest
    BOOK.tiers[tenant] = tier
  end
  return tier
end

-- The rules for these fields, in their order, with what their gates' names begin with.
local function templates(fields)
  local key = table.concat(fields, '\n')
  if TEMPLATES[key] then return TEMPLATES[key] end
  local missing, out, won = {}, {}, {}
  for _, f in ipairs(fields) do if not RULES[f] then missing[#missing + 1] = f end end
  if #missing > 0 then
    for i, text in ipairs(call('HMGET', B .. ':book', unpack(missing))) do RULES[missing[i]] = text and cmsgpack.unpack(text) or NO_GATES end
  end
  for i, f in ipairs(fields) do
    for _, rule in ipairs(RULES[f]) do
      local all = BOOK[i] == '*'
      if all or not won[rule.k] then
        won[rule.k] = won[rule.k] or not all
        local parts, named = (all and '' or BOOK[i]) .. rule.p, ''
        for _, p in ipairs(PARTS) do
          if string.find(parts, p, 1, true) and not (p == 'r' and string.find(parts, 't', 1, true)) then named = named .. p end
        end
        local prefix = rule.k .. '/' .. BOOK[i] .. (rule.p == '' and '' or '+' .. rule.p) .. '/'
        out[#out + 1] = { kind = rule.k, rule = rule, prefix = prefix, parts = named, order = RANK[rule.k] .. prefix }
      end
    end
  end
  table.sort(out, function(x, y) return x.order < y.order end)
  TEMPLATES[key] = out
  return out
end

-- whether there is no rule at all
function book_empty()
  if not BOOK then book_open() end
  return #BOOK == 0
end

-- The gates of a task: a list of { name, kind, rule, cap (slots) }.
function book_gates(h)
  if book_empty() then return NO_GATES end
  local part = { q = h.queue, a = h.agent, t = h.tenant, r = BOOK.r and tier_of(h.tenant) or '' }
  local tuple = (BOOK.q and h.queue or '') .. '/' .. (BOOK.a and h.agent or '') .. '/' .. part.r .. '/' .. (BOOK.t and h.tenant or '')
  if GATES_OF[tuple] then return GATES_OF[tuple] end
  local fields, gates = {}, {}
  for i, m in ipairs(BOOK) do
    local f = m .. '/'
    if m ~= '*' then f = f .. string.gsub(m, '.', function(p) return part[p] .. '/' end) end
    fields[i] = m ~= '*' and string.sub(f, 1, -2) or f
  end
  for i, t in ipairs(templates(fields)) do
    local values = {}
    for k = 1, #t.parts do values[k] = part[string.sub(t.parts, k, k)] end
    local by_tier = t.rule.t and t.rule.t[part.r]
    gates[i] = { name = t.prefix .. table.concat(values, '/'), kind = t.kind, rule = t.rule, cap = by_tier or t.rule.c }
  end
  GATES_OF[tuple] = gates
  return gates
end

-- What tasks of an agent are expected to use, unless they say so themselves: at least something, so that what is used up is closed.
local ESTIMATES = {}
local function expected(agent)
  local e = ESTIMATES[agent]
  if not e then
    local text = call('HGET', B .. ':book', 'e/' .. agent)
    e = { t = 1, c = 1 }
    if text then e.t, e.c = unpack_('>dd', text) end
    ESTIMATES[agent] = e
  end
  return e
end
-- the units a task takes of a gate: slots by its weight, rates by its cost, budgets by what it is expected to use
function units_of(need, h)
  local kind = need.kind
  if kind == 's' then return h.weight end
  if kind == 'r' then return math.max(1, h.cost) end
  if kind == 't' then return h.tokens or expected(h.agent).t end
  return h.money or expected(h.agent).c
end
end
