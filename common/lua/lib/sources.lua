-- sources: where a claim takes tasks from: streams by the group, lines by their heads.
local function read_new(key, most)
  local read = { 'XREADGROUP', 'GROUP', 'w', C.me, 'COUNT', most, 'STREAMS', key, '>' }
  local r = redis.pcall(unpack(read))
  if r and r.err then                                              -- the stream or its group is gone: begin it anew, nothing skipped
    if not string.find(r.err, 'NOGROUP', 1, true) then error(r.err) end
    call('XGROUP', 'CREATE', key, 'w', '0', 'MKSTREAM')
    r = call(unpack(read))
  end
  return r and r[1][2] or {}
end

local take_stream, take_line
do
-- An entry read whose task runs already (its group was made anew): back to its owner, or, if it is an old one, away.
local function running_already(key, entry, row)
  local r = row_read(row)
  if not r then return end
  if r.entry == entry then call('XCLAIM', key, 'w', r.worker, 0, entry, 'JUSTID') else drop(key, entry) end
  return true
end

-- An entry that no script has made is put aside alone, as a task that cannot be read, under a name that no other has.
local STRANGE = 0
local function put_aside(entry)
  STRANGE = STRANGE + 1
  local id = 'bad-' .. num(us) .. '-' .. STRANGE
  call('SET', J .. id, '?entry ' .. table.concat(entry[2], ' '))
  quarantine(id)
end

-- What the tasks of these envelopes need, so that it is asked for in one command.
local function needs_of(envs)
  local all = {}
  for _, env in ipairs(envs) do
    local ok, _, _, _, _, _, bytes = pcall(unpack_, SEALED, env or '')
    local info = ok and info_of(env, bytes)
    if info and #info.rules > 0 and not info.asked then info.asked, all[#all + 1] = true, info.rules end
  end
  return all
end

-- Up to k tasks from one stream; true when it has no unread entry left.
function take_stream(key, src, k)
  local stop = C.n + k
  while C.n < stop and C.n < C.most and C.looks > 0 and C.ghosts > 0 do
    local most = math.min(stop - C.n, C.most - C.n, C.looks)
    local es = read_new(key, most)
    if #es == 0 then return true end
    local ids, envs = {}, {}
    for i, e in ipairs(es) do
      ids[i] = e[2][2]
      envs[i] = J .. ids[i]
    end
    envs = call('MGET', unpack(envs))
    if not book_empty() then fetch_gates(needs_of(envs)) end
    local rows, ats = call('HMGET', RUN, unpack(ids)), C.ats and call('HMGET', AT, unpack(ids)) or {}
    for i, e in ipairs(es) do
      local id, env = ids[i], envs[i]
      if not env or string.sub(env, 2, 5) ~= e[2][1] or ENDED[string.sub(env, 1, 1)] then
        if #e[2][1] ~= 4 or #id > 64 or not string.find(id, '^[%w_-]+$') then put_aside(e) end
        drop(key, e[1])
        C.ghosts = C.ghosts - 1
      elseif not (rows[i] and running_already(key, e[1], rows[i])) then
        C.looks = C.looks - 1
        local g, wait, h = consider(id, env, ats[i], src, e[1])
        if g then
          drop(key, e[1])
          if g ~= true then park(g, h, id, wait) C.looks = C.looks - 1 end -- as costly as two
        end
      end
    end
    if #es < most then return true end
  end
  return false
end

-- The place of a line's head as it will be once this script has written what it decided.
local function head_after(name)
  local off = LINE_REM[name] and #LINE_REM[name] or 0
  local head, new = tonumber(call('ZRANGE', L .. name, off, off, 'WITHSCORES')[2]), joined(name)
  return head and new and math.min(head, new) or head or new
end

-- Up to k heads of a line: admitted, moved to the line of another gate that refuses, or left where they are (it is blocked).
function take_line(name, k)
  local off = LINE_REM[name] and #LINE_REM[name] or 0
  local heads = call('ZRANGE', L .. name, off, off + math.min(k, 16, C.most - C.n) - 1, 'WITHSCORES')
  local g, due, seen = gate(name), now, #heads == 0
  for i = 1, #heads, 2 do
    local id, new = heads[i], joined(name)                          -- also by the end of the head before: its order key's next
    seen = new and new < tonumber(heads[i + 1])
    if seen then due = MARKS[name] or now break end                 -- who joined in this script comes first
    C.looks = C.looks - 1
    local env, at, parked = call('MGET', J .. id)[1], call('HGET', AT, id), call('HGET', PARK, id) or '\5\0'
    local by, wait, h = true, nil, nil
    if env and not ENDED[string.sub(env, 1, 1)] then by, wait, h = consider(id, env, at or nil, 'l', nil, name) end
    if not by or by == true then leave_line(name, id)
    elseif by.name == name then due = wait and now + math.ceil(wait / 1000) or false break
    else
      local moves = string.byte(parked, 2) + 1
      leave_line(name, id)
      park(by, h, id, wait, moves)
      C.looks = C.looks - 1
      if string.find('wptc', by.kind, 1, true) or (wait and wait > 1e6) then unreserve(book_gates(h), id)
      elseif moves >= MOVES_MAX then reserve(book_gates(h), h, id) end
    end
    if C.looks <= 0 or C.n >= C.most then break end
  end
  g.head = head_after(name)
  MARKS[name] = due
  -- `seen`: no head that this script has not looked at; those who joined the line in it wait for the next claim
  if seen or due ~= now or not g.head then C.blocked[name], C.nblocked = true, C.nblocked + 1 end
end
end
