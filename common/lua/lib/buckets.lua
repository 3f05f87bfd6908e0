-- buckets: what has passed in a trailing window, by sixtieths of it. A bucket counts until its end is a window old: never above the
-- limit, at most 1/61 below. A rate above 512 units is kept so, and every trailing window of a budget.
-- Fields: text (as it is stored: f64...) | slot (what has changed since, by number) | cursor (the newest bucket) | sum | window, width us
local BUCKETS = 61
local function slot_in(text, i) return #text >= i * 8 + 8 and unpack_('>d', text, i * 8 + 1) or 0 end
local function slot_at(r, i) return r.slot[i] or slot_in(r.text, i) end

-- drops what has left the window
local function buckets_roll(r)
  local cur = math.floor(us / r.width)
  if r.cursor > cur + 1 then                                       -- the clock has stepped back: nothing is later than now
    local later = 0
    for b = math.max(cur + 1, r.cursor - BUCKETS + 1), r.cursor do
      local s = b % BUCKETS later, r.slot[s] = later + slot_at(r, s), 0
    end
    r.cursor, r.slot[cur % BUCKETS] = cur, slot_at(r, cur % BUCKETS) + later
  end
  cur = math.max(cur, r.cursor)                                    -- a little back it stays in the newest bucket
  if cur - r.cursor >= BUCKETS then r.text, r.slot, r.sum = '', {}, 0 end
  for b = math.max(r.cursor, cur - BUCKETS) + 1, r.sum > 0 and cur or 0 do
    local s = b % BUCKETS r.sum, r.slot[s] = r.sum - slot_at(r, s), 0
  end
  r.cursor = cur
end
local function buckets_add(r, units)
  local s = r.cursor % BUCKETS
  r.slot[s], r.sum = slot_at(r, s) + units, r.sum + units
end
-- us to wait until `units` fit below the limit, more than which they must not be; 0 = now
local function buckets_wait(r, units)
  local free = r.limit - r.sum
  if units <= free then return 0 end
  for b = r.cursor - BUCKETS + 1, r.cursor do
    free = free + slot_at(r, b % BUCKETS)
    if units <= free then return math.max(1, math.ceil((b + 1) * r.width + r.window - us)) end
  end
  return math.ceil(r.window)
end
-- the text to store: what has changed between what has not; `size`: at least so many numbers
local function buckets_text(r, size)
  local changed, at, parts, text = {}, 1, {}, r.text
  for i in pairs(r.slot) do changed[#changed + 1], size = i, math.max(size, i + 1) end
  if #text < size * 8 then text = text .. string.rep('\0', size * 8 - #text) end
  table.sort(changed)
  for _, i in ipairs(changed) do
    parts[#parts + 1], parts[#parts + 2] = string.sub(text, at, i * 8), pack('>d', r.slot[i])
    at = i * 8 + 9
  end
  parts[#parts + 1] = string.sub(text, at)
  return table.concat(parts)
end
