-- where: where a task is *is* its state. Returns state, header, and for running its row, for parked what holds it back.
local LEFT = {}                                                    -- ids whose rows this script is about to delete
local function where(id)
  local row = not LEFT[id] and call('HGET', RUN, id)
  if row and row_read(row) then return 'running', stored(id), row end
  local env = call('GETRANGE', J .. id, 0, HEADER_MAX)
  if env == '' then return ENDED[call('GETRANGE', R .. id, 0, 0)] or 'unknown' end
  if ENDED[string.sub(env, 1, 1)] then return ENDED[string.sub(env, 1, 1)] end
  if call('ZSCORE', DEAD, id) then return 'dead', header(env) end
  local h = header(env)
  if not h then return 'queued' end
  if call('ZSCORE', Z, id) then return 'scheduled', h end
  local parked = call('HGET', PARK, id)
  if parked then return 'parked', h, string.sub(parked, 3) end
  if h.order ~= '' then
    local head = call('ZRANGE', O .. h.order, 0, 0)[1]
    if head and head ~= id and call('ZSCORE', O .. h.order, id) then return 'parked', h, 'order:' .. h.order end
  end
  return 'queued', h
end
