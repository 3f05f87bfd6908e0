-- dead: what becomes of dead tasks: forgotten, no longer holding their order key, or waiting again.
local function forget_dead(id)
  local h = stored(id)
  call('ZREM', DEAD, id)
  call('HDEL', AT, id)
  call('DEL', J .. id, R .. id, B .. ':b:' .. id)
  if not h then return end
  if h.key ~= '' then key_ended(h, id) end
  order_ended(h, id)
end

-- A dead head no longer keeps the others of its order key waiting.
local function let_go(id, h)
  call('SETRANGE', J .. id, SEALED_BYTES, string.char(h.flags - F_HOLD))
  order_ended(h, id)
end

-- It waits again, as if it had just come: attempts and losses begin anew, its errors are kept. The head of an order key that it
-- holds stays head; any other joins the end of its order. `new`: another header, body and body apart, or nothing.
local function replay(id, h, seq, delay, new)
  local env = call('GET', J .. id)
  local head = new and new.head or string.sub(env, SEALED_BYTES + 1, h.body - 1)
  local body = new and new.body or string.sub(env, h.body)
  local holds = h.order ~= '' and call('ZSCORE', O .. h.order, id)
  if holds then
    seq = h.seq
    if h.age > 0 then head = string.char(string.byte(head) - F_AGE) .. string.sub(head, 2, -9) end -- its age began long ago
  end
  local n = header(pack(SEALED, VERSION, 0, seq, 0, 0, #head) .. head)
  n.gen, n.due, n.exp = next_gen(h.gen), delay > 0 and now + delay or 0, too_old(n)
  local t = history(call('HGET', AT, id))
  t.attempts, t.losses, t.lone, t.backs, t.replays = 0, 0, 0, 0, t.replays + 1
  remember(id, t)
  call('SET', J .. id, pack(SEALED, h.version, n.gen, seq, n.due, n.exp, #head) .. head .. body)
  call('DEL', R .. id)
  call('ZREM', DEAD, id)
  if new then
    if has(n.flags, F_BIG) then call('SET', B .. ':b:' .. id, new.apart) else call('DEL', B .. ':b:' .. id) end
  end
  if n.exp > 0 then call('ZADD', X, num(n.exp), id) end
  count(n.waits, 1)
  NEXT = { n.gen, id }
  if n.order ~= '' and not holds then
    call('ZADD', O .. n.order, num(seq), id)
    if call('ZRANGE', O .. n.order, 0, 0)[1] ~= id then count('behind', 1) NEXT = nil return end
  end
  place(n, id)
  NEXT = nil
end
