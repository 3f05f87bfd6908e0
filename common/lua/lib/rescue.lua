-- rescue: how every script that moves tasks is run. Redis does not roll back, so where a key is not of its type a script stops
-- half-way. Whoever has no place then gets one, and what was being taken in is taken out again: a repeat can take it in. What was
-- being handed over has a pending entry and no row; its owner or the sweep puts it back.
local ok, out = pcall(main)
if ok then return out end
local function failed(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err
end
local function first(gen, id) redis.pcall('XADD', FIRST, '*', pack('>I4', gen), id) end
for _, j in ipairs(JOINS) do
  if redis.pcall('HEXISTS', PARK, j[3]) ~= 1 then
    if failed('HSET', PARK, j[3], j[4]) then first(j[5], j[3])
    elseif failed('ZADD', L .. j[1], j[2], j[3]) then redis.pcall('HDEL', PARK, j[3]) first(j[5], j[3]) end
  end
end
if NEXT then first(NEXT[1], NEXT[2]) end
if #TAKEN > 0 then redis.pcall('DEL', unpack(TAKEN)) end
error(out, 0)
