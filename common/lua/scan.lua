-- scan: a page of tasks, for lists and for what is done to many. Reads only. Whatever is there all the time is met at least once.
-- ARGV: source | cursor ('0' to begin) | about how many to look at | queue | agent | tenant | priority | 1: with an order key
--   sources: all (also ended ones, while they are remembered), run, scheduled, dead (both by time: the cursor is `<ms> <how many of it>`),
--   park (in the line of a gate); '' matches any
-- Reply: next cursor ('0': over) | (id, state, gate or worker, envelope without its body, history, outcome with 256 bytes of its text)*
local source, cursor, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local want = { queue = ARGV[4], agent = ARGV[5], tenant = ARGV[6] }
local prio, ordered = tonumber(ARGV[7]), ARGV[8] == '1'
local ids, out = {}, {}

local function by_time(key)
  local from, skip = string.match(cursor, '^(%d+) (%d+)$')
  from, skip = tonumber(from or '0'), tonumber(skip or '0')
  local page = call('ZRANGEBYSCORE', key, num(from), '+inf', 'WITHSCORES', 'LIMIT', skip, most)
  for i = 1, #page, 2 do
    local ms = tonumber(page[i + 1])
    if ms == from then skip = skip + 1 else from, skip = ms, 1 end
    ids[#ids + 1] = page[i]
  end
  return #page < 2 * most and '0' or num(from) .. ' ' .. skip
end
local function by_hash(key)
  local page = call('HSCAN', key, cursor, 'COUNT', most)
  for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
  return page[1]
end
local function by_key()
  local page = call('SCAN', cursor, 'MATCH', string.gsub(J, '[%[%]%*%?\\]', '\\%0') .. '*', 'COUNT', most)
  for _, key in ipairs(page[2]) do ids[#ids + 1] = string.sub(key, #J + 1) end
  return page[1]
end
if source == 'run' then out[1] = by_hash(RUN) elseif source == 'park' then out[1] = by_hash(PARK)
elseif source == 'scheduled' then out[1] = by_time(Z) elseif source == 'dead' then out[1] = by_time(DEAD)
else out[1] = by_key() end

local function matches(h)
  if not h then return prio == nil and not ordered and want.queue == '' and want.agent == '' and want.tenant == '' end
  for k, v in pairs(want) do if v ~= '' and h[k] ~= v then return false end end
  return (not prio or h.prio == prio) and (not ordered or h.order ~= '')
end
for _, id in ipairs(ids) do
  local h = stored(id)
  local any = not h and ENDED[call('GETRANGE', J .. id, 0, 0)]      -- of what has ended only its outcome is left
  if any and matches() or not any and matches(h) then
    local state, _, detail = where(id)
    if state == 'running' then detail = row_read(detail).worker end
    local ended = state == 'dead' and call('GETRANGE', R .. id, 0, OUTCOME_BYTES + 255) or any and call('GETRANGE', J .. id, 0, OUTCOME_BYTES + 255)
    for _, v in ipairs({ id, state, detail or '', h and call('GETRANGE', J .. id, 0, h.body - 2) or '', call('HGET', AT, id) or '', ended or '' }) do
      out[#out + 1] = v
    end
  end
end
return out
