-- budget: tokens and money (micro-dollars) that may be used in windows. What a task is expected to use is charged when it is admitted;
-- when its run has ended, what it has used takes the place of that. A remainder goes back to the bucket that was charged, unless it
-- has left the window; what was used beyond is charged as far as there is room, and the rest is debt, which is paid before anything
-- else is charged. So what is charged is never above the limit, and charged and debt together are what was used.
-- B:g:<gate>  for each window: f64 ms (-1 calendar day, -2 calendar month) | limit | its newest bucket, or when its period ends, ms
--   | charged | debt | fence from which on admissions count in it | when its period began, ms; then the buckets of a trailing one
-- It stays a day longer than it counts, so that a run that takes longer than its window is still accounted for.
-- B:book  z/d/<zone>, z/m/<zone>: f64... when the days and months of a zone begin, ms
local LATE_MS, FENCE = 86400000, us                                -- FENCE: the first that this script may give
local window_pay, budget_read, budget_refuses, budget_take, budget_flush
do
local BUDGET_FMT, BUDGET_HEAD = '>ddddddd', 56
local LONGEST = { [-1] = 25 * 3600000, [-2] = 31 * 86400000 + 3600000 }
local PERIODS = {}

local function window_of(ms)
  return { ms = ms, limit = 0, cursor = 0, sum = 0, debt = 0, since = FENCE, from = 0, text = '', slot = {}, window = ms * 1000, width = ms * 1000 / 60 }
end
-- The period that is now: when it began and when it ends; false: nobody knows (any more).
local function period(ms, zone)
  local key = (ms == -1 and 'z/d/' or 'z/m/') .. (zone or '')
  if PERIODS[key] == nil then
    local text = call('HGET', B .. ':book', key) or ''
    local low, high = -1, math.floor(#text / 8)                    -- begins[low] <= now < begins[high]
    while high - low > 1 do
      local mid = math.floor((low + high) / 2)
      if slot_in(text, mid) <= now then low = mid else high = mid end
    end
    PERIODS[key] = low >= 0 and high < #text / 8 and { slot_in(text, low), slot_in(text, high) } or false
  end
  return PERIODS[key]
end
local function window_charge(w, units)
  if w.ms > 0 then buckets_add(w, units) else w.sum = w.sum + units end
end
-- Debt is paid from what there is room for; true: some was.
function window_pay(w)
  local pay = math.min(w.debt, math.max(0, w.limit - w.sum))
  if pay == 0 then return false end
  w.debt = w.debt - pay
  window_charge(w, pay)
  return true
end

-- The windows of a gate as they are stored.
function budget_read(g)
  local all, state, at = {}, fetch(G .. g.name) or '', 1
  while #state >= at + BUDGET_HEAD - 1 do
    local ms, limit, cursor, sum, debt, since, from = unpack_(BUDGET_FMT, state, at)
    local w = window_of(ms)
    w.limit, w.cursor, w.sum, w.debt, w.since, w.from = limit, cursor, sum, debt, since, from
    at = at + BUDGET_HEAD
    if ms > 0 then w.text, at = string.sub(state, at, at + BUCKETS * 8 - 1), at + BUCKETS * 8 end
    all[#all + 1] = w
  end
  return all
end
-- The same as a rule has them, now: one that is added counts from now on. A period that begins owes nothing but debt.
local function budget_load(g, rule)
  if g.budget then return g.budget end
  local had, all = {}, {}
  for _, w in ipairs(budget_read(g)) do had[w.ms] = w end
  for i, r in ipairs(rule.w) do
    local w = had[r[2]] or window_of(r[2])
    w.limit = r[1]
    if w.ms > 0 then buckets_roll(w)
    else
      local p = period(w.ms, rule.z)
      w.closed = not p
      if p and p[2] > w.cursor then                                -- of another zone, perhaps: what overlaps goes on
        if w.cursor <= p[1] then w.sum = 0 end
        w.from, w.cursor = p[1], p[2]
      end
    end
    if window_pay(w) then g.dirty = true end
    all[i] = w
  end
  g.budget = all
  return all
end
-- us until so many units may be used: 0 now, -1 never
function budget_refuses(g, rule, units)
  local longest = 0
  for _, w in ipairs(units > 0 and budget_load(g, rule) or {}) do
    if units > w.limit then return -1 end
    if w.closed then longest = math.max(longest, 3600e6)
    elseif w.ms > 0 then longest = math.max(longest, buckets_wait(w, units + w.debt))
    elseif w.sum + w.debt + units > w.limit then longest = math.max(longest, (w.cursor - now) * 1000) end
  end
  return longest
end
function budget_take(g, rule, units)
  for _, w in ipairs(budget_load(g, rule)) do window_charge(w, units) end
  g.dirty = true                                                   -- also where nothing is expected: something may be used
end
function budget_flush(g)
  local parts, ttl = {}, 0
  for _, w in ipairs(g.budget or {}) do
    parts[#parts + 1] = pack(BUDGET_FMT, w.ms, w.limit, w.cursor, w.sum, w.debt, w.since, w.from)
    if w.ms > 0 then parts[#parts + 1] = buckets_text(w, BUCKETS) end
    ttl = math.max(ttl, (LONGEST[w.ms] or w.ms) * (1 + math.ceil(w.debt / math.max(1, w.limit))))
  end
  if #parts > 0 then call('SET', G .. g.name, table.concat(parts), 'PX', num(math.min(ttl + LATE_MS, MS_MAX))) end
end
end
