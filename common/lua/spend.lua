-- spend: what running deliveries say that they have used so far, all in all. It counts when they end; of one that is lost, at once,
-- and what it says later as well. ARGV: (id, fence in 8 bytes, tokens, micro-dollars)*
-- Reply: one letter a delivery: k kept | l counted, and it is lost | s nothing is known of it
local out = {}
for i = 1, #ARGV, 4 do
  local id, fence = ARGV[i], ARGV[i + 1]
  local row, use = call('HGET', RUN, id), { t = tonumber(ARGV[i + 2]) or 0, c = tonumber(ARGV[i + 3]) or 0 }
  use.t, use.c = math.min(use.t, UNITS_MAX), math.min(use.c, UNITS_MAX)
  if row and string.sub(row, 1, 8) == fence then
    local had = call('HGET', USED, id)
    if had and string.sub(had, 1, 8) == fence then
      local tokens, money = unpack_('>dd', had, 9)
      use.t, use.c = math.max(use.t, tokens), math.max(use.c, money)
    end
    call('HSET', USED, id, fence .. pack('>dd', use.t, use.c))
    out[#out + 1] = 'k'
  else out[#out + 1] = #fence == 8 and spent_late(id, fence_number(fence), use) and 'l' or 's' end
end
flush()
return table.concat(out)
