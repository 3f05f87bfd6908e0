-- replace: a submit under a key, in a mode that lets it take the place of what waits under it. What runs or has ended is left alone:
-- then it is a task of its own, and has the key from now on. The last content to come is never lost.
--   r replace: the waiting task gets the new content and timing, and keeps its id and its place
--   b debounce: the same, and is put off again: until nothing has come for its delay, or for ten delays after its acceptance
local DEBOUNCE_MOST = 10

local function put_in_place(id, o, was, h, stays, limit)
  if not stays then lift(was, id) end
  call('SET', J .. id, pack(SEALED, VERSION, h.gen, h.seq, h.due, h.exp, #ARGV[o + 3]) .. ARGV[o + 3] .. ARGV[o + 4])
  if has(h.flags, F_BIG) then call('SET', B .. ':b:' .. id, ARGV[o + 5]) elseif has(was.flags, F_BIG) then call('DEL', B .. ':b:' .. id) end
  call('SET', key_of(h), string.format('%-64s', id) .. ARGV[o + 2])
  if limit > 0 then call('ZADD', X, num(limit), id) elseif was.exp > 0 then call('ZREM', X, id) end
  if QUEUES[h.queue] == 'new' then name_queue(h.queue) end
  count(was.waits, -1)
  count(h.waits, 1)
  if stays then return end
  NEXT = { h.gen, id }
  place(h, id)
  NEXT = nil
end

-- The reply, if there is a task under its key that waits.
local function replace(h, o, delay, ttl, mode)
  local first = call('GET', key_of(h))
  local id = first and string.gsub(string.sub(first, 1, 64), ' ', '')
  if not id then return end
  local state, was, by = where(id)
  if not was or not (state == 'queued' or state == 'scheduled' or state == 'parked') then return end
  if was.order ~= h.order then return 'c' .. id end
  if not queue_known(h.queue) then return 'u' end
  local due = delay > 0 and now + delay or 0
  if mode == 'b' then due = math.min(due, math.floor(was.seq / 1000) + DEBOUNCE_MOST * delay) end
  local n = header(sealed(h, was.seq, next_gen(was.gen), delay, ttl, ARGV[o + 3]) .. ARGV[o + 3])
  n.due = due
  local ran = call('HEXISTS', AT, id) == 1
  local stays = state == 'parked' and string.sub(by, 1, 6) == 'order:' or state == 'scheduled' and ran
  put_in_place(id, o, was, n, stays, ran and too_old(n) or n.exp)
  return 'p' .. id
end

-- One that may take the place of what waits under its key; by itself, since it has to see what came before it.
local function accept_moded(o, most)
  local id, head = ARGV[o], ARGV[o + 3]
  local delay, ttl, mode = timing(ARGV[o + 1])
  local kind = kind_of(head)
  if call('EXISTS', J .. id) == 1 then return 'd' .. id end
  FULL = {}                                                        -- counted anew: what was taken in before is among the deltas
  local reply = replace(kind, o, delay, ttl, mode) or no_room(kind, id, most)
  if reply then return reply end
  local seq = after('seq', 1)                                      -- it comes after the rest of its batch
  local env = sealed(kind, seq, seq % 4294967296, delay, ttl, head) .. head .. ARGV[o + 4]
  local h = header(env)
  call('SET', J .. id, env)
  TAKEN[#TAKEN + 1] = J .. id
  if QUEUES[h.queue] == 'new' then name_queue(h.queue) end
  count(h.waits, 1)
  enter(h, id, o)
  return 'q'
end
