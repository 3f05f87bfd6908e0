-- state: what lies under a gate's keys, asked for once a script, and for many gates in one command where a script knows them before.
local FETCHED = {}
local function fetch(key)
  local v = FETCHED[key]
  if v == nil then v = call('GET', key) FETCHED[key] = v end
  return v
end
local function fetch_all(keys)
  for from = 1, #keys, 1000 do
    local to = math.min(from + 999, #keys)
    for i, v in ipairs(call('MGET', unpack(keys, from, to))) do FETCHED[keys[from + i - 1]] = v end
  end
end
