-- book: applies the compiled rules as a whole when their revision is newer; counters are never touched. The same revision with
-- other content is refused. Lines are looked at again afterwards, by the page (refresh).
-- B:books  stream of the last books: revision, note, text
-- ARGV: revision | fingerprint | masks | parts | tiers | text | zones | note | revision that it is to follow ('': any) | tenants
--   | (tenant, tier)* | (field, rules)*
-- Reply: applied | same | conflict | older | moved: another one is in force than it is to follow; then the revision in force
local revision, print_, tenants, KEPT = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[10]), 20
local had = call('HMGET', B .. ':book', 'revision', 'print')
local old = tonumber(had[1] or '0')
if ARGV[9] ~= '' and tonumber(ARGV[9]) ~= old then return { 'moved', old } end
if revision < old then return { 'older', old } end
if revision == old and had[1] then return { had[2] == print_ and 'same' or 'conflict', old } end
for _, gate in ipairs(call('SMEMBERS', B .. ':reserved')) do       -- made by the old rules; who is refused again makes new ones
  local used = call('GETRANGE', G .. gate, 0, 7)
  if used == '' or unpack_('>d', used) == 0 then call('DEL', G .. gate) else call('SET', G .. gate, used) end
end
call('DEL', B .. ':book', B .. ':tier', B .. ':reserved')
local function set_all(key, from, to)
  for i = from, to, 2000 do call('HSET', key, unpack(ARGV, i, math.min(i + 1999, to))) end
end
call('HSET', B .. ':book', 'revision', ARGV[1], 'print', print_, 'masks', ARGV[3], 'parts', ARGV[4], 'tiers', ARGV[5], 'text', ARGV[6], 'zones', ARGV[7])
set_all(B .. ':tier', 11, 10 + 2 * tenants)
set_all(B .. ':book', 11 + 2 * tenants, #ARGV)
call('XADD', B .. ':books', 'MAXLEN', KEPT, '*', 'revision', ARGV[1], 'note', ARGV[8], 'text', ARGV[6])
return { 'applied', revision }
