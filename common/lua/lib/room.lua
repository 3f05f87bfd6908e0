-- room: how many tasks of a queue and priority may wait, and when there will be room again.
-- B:drain  hash: the counter's name -> f64 ms, f64 tasks taken by then, f64 taken a second: looked at by refusals alone
local DRAIN, LOOK_MS, HINT_MIN, HINT_MAX, LOW_SHARE = B .. ':drain', 1000, 50, 60000, 0.8
local HINTS = {}
-- Low tasks leave a fifth of the room to the others.
local function room(h, most) return h.prio == 1 and math.max(1, math.floor(most * LOW_SHARE)) or most end

-- ms until so many have been taken, by the rate at which they were taken of late
local function rate_of(waits)
  local taken = tonumber(call('HGET', N, 't' .. string.sub(waits, 2)) or '0') or 0
  local v = call('HGET', DRAIN, waits)
  local ok, at, last, rate = pcall(unpack_, '>ddd', v or '')
  if not ok then at, last, rate = now, taken, -1 end
  local passed = now - at
  if passed >= LOOK_MS then
    local seen = math.max(0, taken - last) * 1000 / passed
    rate = rate < 0 and seen or (rate + seen) / 2
  end
  if not ok or passed >= LOOK_MS or passed < 0 then
    call('HSET', DRAIN, waits, pack('>ddd', now, taken, rate))
    call('PEXPIRE', DRAIN, 3600000)
  end
  return rate
end
local function hint(waits, over)
  HINTS[waits] = HINTS[waits] or rate_of(waits)
  local rate = HINTS[waits]
  if rate < 0 then return LOOK_MS end                              -- the first refusal for long: nothing is known yet
  if rate == 0 then return HINT_MAX end
  return math.max(HINT_MIN, math.min(HINT_MAX, math.ceil(over * 1000 / rate)))
end
