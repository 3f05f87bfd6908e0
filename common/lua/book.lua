-- book: applies the compiled rules as a whole when their revision is newer; counters are never touched. The same revision with
-- other content is refused. Lines are looked at again afterwards, by the page (refresh).
-- ARGV: revision | fingerprint | masks | (field, rules)*
-- Reply: applied | same | conflict | older, then the revision in force
local revision, print_ = tonumber(ARGV[1]), ARGV[2]
local had = call('HMGET', B .. ':book', 'revision', 'print')
local old = tonumber(had[1] or '0')
if revision < old then return { 'older', old } end
if revision == old and had[1] then return { had[2] == print_ and 'same' or 'conflict', old } end
for _, gate in ipairs(call('SMEMBERS', B .. ':reserved')) do       -- made by the old rules; who is refused again makes new ones
  if call('HGET', G .. gate, 'u') == '0' then call('DEL', G .. gate) else call('HSET', G .. gate, 'rp', '', 'ri', '') end
end
call('DEL', B .. ':book', B .. ':reserved')
call('HSET', B .. ':book', 'revision', ARGV[1], 'print', print_, unpack(ARGV, 3))
return { 'applied', revision }
