-- emit: output of running deliveries, as it comes; refused when their fence is not current. B:c:<id>  stream, an hour after the last of
-- it, at most OUTPUT_MAX bytes: the oldest go. The output of an earlier run goes with the first of a later one.
-- ARGV: (id, fence in 8 bytes, attempt, offset in the run's output, data)*
-- Reply: one letter a delivery: k kept | s stale
local OUTPUT_MAX, OUTPUT_MS, HEAD = 4194304, 3600000, '>c8Hd'
local out = {}
local function size_of(key)                                        -- bytes from the oldest kept to the newest
  local first, last = call('XRANGE', key, '-', '+', 'COUNT', 1)[1], call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not first then return 0 end
  local _, _, from = unpack_(HEAD, first[2][2])
  local _, _, to, at = unpack_(HEAD, last[2][2])
  return to + #last[2][2] - at + 1 - from, first[1]
end
for i = 1, #ARGV, 5 do
  local row, key = call('HGET', RUN, ARGV[i]), B .. ':c:' .. ARGV[i]
  if row and string.sub(row, 1, 8) == ARGV[i + 1] then
    local last = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    if last and string.sub(last[2][2], 1, 8) ~= ARGV[i + 1] then call('XTRIM', key, 'MAXLEN', 0) last = nil end
    local _, _, to, at = unpack_(HEAD, last and last[2][2] or pack(HEAD, ARGV[i + 1], 0, 0))
    local ended = last and to + #last[2][2] - at + 1 or 0
    local offset = tonumber(ARGV[i + 3])
    if not last or offset >= ended then                            -- sent twice, it is there already
      call('XADD', key, '*', 'd', pack(HEAD, ARGV[i + 1], tonumber(ARGV[i + 2]), offset) .. ARGV[i + 4])
      for _ = 1, 64 do
        local size, oldest = size_of(key)
        if size <= OUTPUT_MAX then break end
        call('XDEL', key, oldest)
      end
    end
    call('PEXPIRE', key, OUTPUT_MS)
    out[#out + 1] = 'k'
  else out[#out + 1] = 's' end
end
return table.concat(out)
