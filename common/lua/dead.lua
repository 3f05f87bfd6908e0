-- dead: dead -> queued | scheduled | parked (replayed); dead -> gone (purged); a dead head lets the next of its order key go (skipped).
-- An operator's. Sent twice, what was done is `n`: it is not dead any more; so two that replay at once cannot double a task.
-- ARGV: (id, verb, ms until it is due, header, body, body that lies apart)*, at most 256
--   verbs: R replay (header '': as it was; else the envelope's new parts, of the same queue, agent, tenant and keys) D purge S skip
-- Reply: one letter a task: r replayed | d purged | s skipped | n not dead | ! cannot be read: purge it | i the new parts do not fit
local n, out, events = #ARGV / 6, {}, {}
if n > 256 or n ~= math.floor(n) then return redis.error_reply('BATCH at most 256 tasks a call, six values each') end
local seq = after('seq', n) - 1
local function event(kind, id) events[kind] = (events[kind] or '') .. id .. '\n' end

local function parts(o, h)
  if ARGV[o + 3] == '' then return nil, true end
  local p = header(pack(SEALED, VERSION, 0, 0, 0, 0, #ARGV[o + 3]) .. ARGV[o + 3])
  local same = p and p.queue == h.queue and p.agent == h.agent and p.tenant == h.tenant and p.order == h.order and p.key == h.key
  return { head = ARGV[o + 3], body = ARGV[o + 4], apart = ARGV[o + 5] }, same
end

local function one(i, o)
  local id, verb = ARGV[o], ARGV[o + 1]
  if not call('ZSCORE', DEAD, id) then return 'n' end
  if verb == 'D' then
    forget_dead(id)
    event('purged', id)
    return 'd'
  end
  local h = stored(id)
  if not h then return '!' end
  if verb == 'S' then
    if has(h.flags, F_HOLD) then let_go(id, h) event('skipped', id) end
    return 's'
  end
  local new, fit = parts(o, h)
  if not fit then return 'i' end
  replay(id, h, seq + i, tonumber(ARGV[o + 2]) or 0, new)
  count('o:replayed', 1)
  event('replayed', id)
  return 'r'
end

for i = 1, n do out[i] = one(i, 6 * i - 5) end
for kind, ids in pairs(events) do log_event(kind, ids) end
flush()
return table.concat(out)
