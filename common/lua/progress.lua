-- progress: what running deliveries say of themselves; refused when their fence is not current. ARGV: (id, fence in 8 bytes, text)*
-- Reply: one letter a delivery: k kept | s stale
local out = {}
for i = 1, #ARGV, 3 do
  local row = call('HGET', RUN, ARGV[i])
  if row and string.sub(row, 1, 8) == ARGV[i + 1] then
    call('SET', B .. ':p:' .. ARGV[i], ARGV[i + 2], 'PX', 3600000)
    out[#out + 1] = 'k'
  else out[#out + 1] = 's' end
end
return table.concat(out)
