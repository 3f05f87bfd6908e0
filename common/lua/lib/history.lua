-- history: B:at, only for tasks that failed, were lost, handed back or replayed before: what counts, and the last errors.
--   u16 attempts | u16 losses beside others | u16 losses alone | u16 hand-backs | u16 replays | f64 fence of the last delivery
--   | (f64 ms, u16 attempt, str16 error)*, the newest first
local HISTORY, ERROR, NO_FENCE = '>HHHHHc8', '>dHHc0', string.rep('\0', 8)
local ERRORS_MAX, NEWEST_BYTES, OLDER_BYTES = 5, 1024, 256

local function no_history()
  return { attempts = 0, losses = 0, lone = 0, backs = 0, replays = 0, fence = NO_FENCE, errors = '' }
end
local function history(v)
  if not v then return no_history() end
  local ok, a, l, s, b, r, f, o = pcall(unpack_, HISTORY, v)
  if not ok then return no_history() end                           -- nobody has written that
  return { attempts = a, losses = l, lone = s, backs = b, replays = r, fence = f, errors = string.sub(v, o) }
end
-- Another error, of this attempt; older ones are cut, the oldest go.
local function note(t, attempt, text)
  text = string.sub(text, 1, NEWEST_BYTES)
  local kept, o = { pack(ERROR, now, attempt, #text, text) }, 1
  while o <= #t.errors and #kept < ERRORS_MAX do
    local ok, at, n, old, after_ = pcall(unpack_, ERROR, t.errors, o)
    if not ok then break end
    old = string.sub(old, 1, OLDER_BYTES)
    kept[#kept + 1], o = pack(ERROR, at, n, #old, old), after_
  end
  t.errors = table.concat(kept)
end
local function remember(id, t)
  local cap = function(n) return math.min(n, 65535) end
  call('HSET', AT, id, pack(HISTORY, cap(t.attempts), cap(t.losses), cap(t.lone), cap(t.backs), cap(t.replays), t.fence) .. t.errors)
end

-- A task that cannot be read is put aside alone: dead as `invalid`, its raw bytes kept, bounded.
local QUARANTINE_MAX = 65536
local function quarantine(id)
  local bytes = call('STRLEN', J .. id)
  if bytes == 0 or string.find(call('GETRANGE', J .. id, 0, 0), '%l') then return end -- nothing there, or the record of its end
  if bytes > QUARANTINE_MAX then call('SET', J .. id, call('GETRANGE', J .. id, 0, QUARANTINE_MAX - 1)) end
  call('ZADD', DEAD, num(now), id)
  local t = no_history()
  note(t, 0, 'invalid: the envelope cannot be read')
  remember(id, t)
  count('o:quarantined', 1)
end
