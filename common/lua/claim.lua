-- claim: queued | parked -> running (admitted: all gates taken, fence issued) | parked (refused) | expired | dead (never fits).
-- What was lost comes first in a bounded share, then the lines of agents that are offered; then each priority has its share, and
-- what is left goes to whoever has work. Sent twice with the same sequence it returns the same deliveries, while they are current.
-- ARGV: worker | sequence | most tasks | lone (1: only what was lost before, alone) | version up to which it reads envelopes
--   | shares of 20,10,5,1 | (agent, room)*
-- Reply: status | now ms | next due ms | lone work waits (0/1) | cut short (1: ask again) | (id, fence, attempt, losses, envelope)*
local me, seq, most, lone, reads = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local rooms = {}
for v = 2, reads do rooms['@' .. v] = most end                     -- lines of what earlier workers cannot read
for i = 10, #ARGV, 2 do rooms[ARGV[i]] = tonumber(ARGV[i + 1]) end

if (tonumber(call('ZSCORE', W, me) or '0') or 0) <= 0 then return { 'gone' } end
local again = replay(me, seq)
if again then return again end
if not lone then promote(math.max(16, most)) end
place_flush()                                                      -- what was promoted is seen below
RING = false

claim_open(me, most, rooms, lone, reads)
if C.held and pauses()['*'] then                                   -- nothing is taken; its end makes the streams live again
  call('DEL', B .. ':live:20', B .. ':live:10', B .. ':live:5', B .. ':live:1')
elseif lone then
  take_line('want:*', 1)
else
  local none_lost = take_stream(FIRST, 'f', math.ceil(most / 2))
  local none_wanted = take_wanted(math.ceil(most / 2))
  for pass = 1, 2 do
    for i, prio in ipairs(PRIOS) do
      local quota = pass == 1 and tonumber(ARGV[5 + i]) or most
      if quota > 0 and not DRY[prio] then take_priority(prio, quota) end
    end
  end
  if not none_lost then take_stream(FIRST, 'f', most) end
  if not none_wanted then take_wanted(most) end
end
return claim_close(seq)
