-- accept: takes new tasks in, from a producer or from a handler's outbox. ARGV from `at`, six a task:
--   id | timing: '' or `delay:deadline` in ms, then `:r` or `:b` (see replace) | fingerprint of a keyed task | header | body | body
--   that lies apart
-- Replies, one string a task: q accepted | d<id> duplicate | c<id> conflict: key reused for another task | p<id> its content has
-- taken the place of that task's | f<ms> full: there may be room in so many ms | u too many queues | n<gate> it could never pass
-- that gate | i invalid. A task is checked
-- whole before its first write; envelopes are written before what names them.
local function accept(at, n, most)
  local seq, out, sets, seen, clash, moded = after('seq', n) - 1, {}, {}, {}, false, {}
  local kinds, heads = {}, {}
  for i = 1, n do
    local o = at + (i - 1) * ITEM
    local id, head, s = ARGV[o], ARGV[o + 3], seq + i
    local delay, ttl, mode = timing(ARGV[o + 1])
    local k = kind_of(head)
    if not k or not delay or #id > 64 or not string.find(id, '^[%w_-]+$') or (mode ~= '' and k.key == '') then out[i] = 'i'
    elseif seen[id] then out[i] = 'd' .. id
    elseif k.never then
      out[i] = mode == '' and known(k, id, ARGV[o + 2]) or call('EXISTS', J .. id) == 1 and 'd' .. id or 'n' .. k.never
    elseif mode ~= '' then moded[#moded + 1] = i
    else
      local env, h = sealed(k, s, s % 4294967296, delay, ttl, head) .. head .. ARGV[o + 4], nil
      if k.plain and most == 0 and ARGV[o + 1] == '' then out[i] = 'q'
      else
        h = header(env)
        out[i] = known(h, id, ARGV[o + 2]) or no_room(h, id, most) or 'q'
      end
      if out[i] == 'q' then
        seen[id], kinds[i], heads[i] = true, k, h
        if h and h.key ~= '' then KEYED[key_of(h)] = string.format('%-64s', id) .. ARGV[o + 2] end
        sets[#sets + 1], sets[#sets + 2] = J .. id, env
      end
    end
  end
  if #sets > 0 then clash = call('MSETNX', unpack(sets)) == 0 end
  for k = 1, clash and 0 or #sets, 2 do TAKEN[#TAKEN + 1] = sets[k] end
  local j = -1
  for i = 1, n do
    local o = at + (i - 1) * ITEM
    local id, k, h = ARGV[o], kinds[i], heads[i]
    if k then
      j = j + 2
      if clash and call('SETNX', sets[j], sets[j + 1]) == 0 then out[i] = 'd' .. id
      else
        if clash then TAKEN[#TAKEN + 1] = sets[j] end
        if QUEUES[k.queue] == 'new' then name_queue(k.queue) end
        count(k.waits, 1)
        if h then enter(h, id, o) else into_stream(k.queue, k.prio, (seq + i) % 4294967296, id) end
      end
    end
  end
  for _, i in ipairs(moded) do out[i] = accept_moded(at + (i - 1) * ITEM, most) end
  return out
end
