-- refresh: marks the gates of a page of parked tasks ready, so that a new book meets them. ARGV: cursor. Reply: next cursor (0: done)
local page, seen = call('HSCAN', PARK, ARGV[1], 'COUNT', 512), {}
for i = 1, #page[2], 2 do
  local name = string.sub(page[2][i + 1], 3)
  if not seen[name] then seen[name], MARKS[name], RING = true, now, true end
end
flush()
return page[1]
