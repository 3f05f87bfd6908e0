-- own: the pending entries of a living worker, a page a call, so that it can hand back those that it does not hold (a lost claim
-- reply), and hears again of those that were called off (a lost note). Entries that no row speaks for are put back here.
-- ARGV: worker | stream number | from entry | most
-- Reply: next stream number (0: done) | next entry | (id, fence, called off (0/1))*
local me, out, stray = ARGV[1], { 0, '-' }, {}
local cursor = pending_of(me, { tonumber(ARGV[2]), ARGV[3] }, tonumber(ARGV[4]), function(key, entry, gen, id)
  local row = id and call('HGET', RUN, id)
  local r = row and row_read(row)
  if r and r.entry == entry then
    if r.worker == me then
      local n = #out
      out[n + 1], out[n + 2], out[n + 3] = id, r.fence, has(r.marks, ROW_CANCEL) and 1 or 0
    else call('XCLAIM', key, 'w', r.worker, 0, entry, 'JUSTID') end
  elseif id then stray[#stray + 1] = { key, entry, gen, id } end
end)
for _, s in ipairs(stray) do
  local row = call('HGET', RUN, s[4])
  if not (row and row_read(row)) then put_back(s[3], s[4]) end
  call('XACK', s[1], 'w', s[2])
  call('XDEL', s[1], s[2])
end
if cursor then out[1], out[2] = cursor[1], cursor[2] end
flush()
return out
