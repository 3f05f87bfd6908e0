-- workers: who is there and what each runs. Reads only. ARGV: most
-- Reply: now | (worker, ms at which its lease ends, 0: given up, agents `,a,b,`, asleep with room (0/1), deliveries)*
local keys, busy, out = { FIRST, LINE }, {}, { now }
for _, q in ipairs(call('SMEMBERS', B .. ':qs')) do
  for _, p in ipairs(PRIOS) do keys[#keys + 1] = stream_of(q, p) end
end
for _, key in ipairs(keys) do
  local p = redis.pcall('XPENDING', key, 'w')
  for _, c in ipairs(not p.err and p[4] or {}) do busy[c[1]] = (busy[c[1]] or 0) + tonumber(c[2]) end
end
local all = call('ZRANGEBYSCORE', W, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[1]))
for i = 1, #all, 2 do
  local w = all[i]
  for _, v in ipairs({ w, num(tonumber(all[i + 1])), call('HGET', B .. ':wa', w) or '', call('SISMEMBER', IDLE, w), busy[w] or 0 }) do out[#out + 1] = v end
end
return out
