-- spend: what becomes of what a run has taken, when it ends. Only its row says what that was, never the rules of the moment.
-- B:used  id -> 8 bytes fence | f64 tokens | f64 micro-dollars: what a running delivery says that it has used so far
-- B:u:<id>:<fence>  msgpack, of a lost run: { start ms, tokens, micro-dollars, { { gate, charged }... } }: what it reports later is
--   counted as well, once. For a day.
local USED = B .. ':used'
local give_back, give_back_lost, spent, spent_late
do

-- What was used takes the place of what was charged for it at `start`, by the delivery of that fence.
local function reconcile(name, start, fence, charged, used)
  if used == charged then return end
  local g = gate(name)
  g.budget = g.budget or budget_read(g)
  for _, w in ipairs(g.budget) do
    if fence >= w.since then                                       -- a window that was added later knows nothing of it
      local more, ended = used - charged, w.ms < 0 and now >= w.cursor
      if w.ms > 0 then buckets_roll(w) end
      if more > 0 then
        w.debt = w.debt + more
      elseif w.ms < 0 then
        if start >= w.from then w.sum = math.max(0, w.sum + more) end
      else
        local b = math.min(math.floor(start * 1000 / w.width), w.cursor)
        for i = b > w.cursor - BUCKETS and b or w.cursor + 1, w.cursor do
          local has_ = slot_at(w, i % BUCKETS)
          local off = math.min(has_, -more)
          if off > 0 then w.slot[i % BUCKETS], w.sum, more = has_ - off, w.sum - off, more + off end
        end
      end
      if not ended then window_pay(w) end                          -- the next period is not begun here: only its rule knows it
      g.dirty = true
    end
  end
  if used < charged and g.head then MARKS[name], RING = now, true end
end

-- Gives back what a run took, and marks those gates ready. `use`: what it has used, { t tokens, c micro-dollars }, if that is known.
-- `cut`: it did not end by itself, so that nobody knows all that it used: the rule says what that costs. Returns what was charged.
function give_back(taken, start, fence, cut, use)
  local charged = {}
  for _, t in ipairs(row_taken(taken)) do
    local kind = string.sub(t.name, 1, 1)
    if kind == 's' then
      local g = gate(t.name)
      g.used, g.dirty = math.max(0, g.used - t.units), true
      if g.head then MARKS[g.name], RING = now, true end
    elseif kind ~= 'r' then
      local known, used = use and use[kind], nil
      if not cut then used = known or t.units
      elseif t.loss == 'C' then used = math.max(t.units, known or 0)
      else used = t.loss == 'R' and known or 0 end
      reconcile(t.name, start, fence, t.units, used)
      charged[#charged + 1] = { t.name, used }
    end
  end
  return charged
end
function spent(use) count('u:t', use.t) count('u:c', use.c) end

-- A lost run: what it had said that it used. `row`: as row_read reads it.
function give_back_lost(id, r)
  local said, use = call('HGET', USED, id), { t = 0, c = 0 }
  if said and string.sub(said, 1, 8) == r.fence then
    use.t, use.c = unpack_('>dd', said, 9)
    spent(use)
  end
  if said then call('HDEL', USED, id) end
  local fence = fence_number(r.fence)
  local charged = give_back(r.taken, r.start, fence, true, use)
  if #charged > 0 then
    call('SET', B .. ':u:' .. id .. ':' .. num(fence), cmsgpack.pack({ r.start, use.t, use.c, charged }), 'PX', LATE_MS)
  end
end
-- What a run says that was lost before: true if it is still known. `last`: it has ended, and that was all.
function spent_late(id, fence, use, last)
  local key = B .. ':u:' .. id .. ':' .. num(fence)
  local text = call('GET', key)
  if not text then return false end
  local start, tokens, money, charged = unpack(cmsgpack.unpack(text))
  use = { t = math.max(use.t, tokens), c = math.max(use.c, money) }
  spent({ t = use.t - tokens, c = use.c - money })
  for _, c in ipairs(charged) do
    local used = use[string.sub(c[1], 1, 1)]
    if not last then used = math.max(used, c[2]) end
    reconcile(c[1], start, fence, c[2], used)
    c[2] = used
  end
  call('SET', key, cmsgpack.pack({ start, use.t, use.c, charged }), 'KEEPTTL')
  return true
end
end
