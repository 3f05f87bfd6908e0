-- queues: the names of queues, of which there may be so many.
local QUEUES_MAX = 256
local QUEUES, NEW_QUEUES = {}, 0                                    -- name -> false, known, or new: named with its first task
local function queue_known(queue)
  if QUEUES[queue] == nil then
    if call('SISMEMBER', B .. ':qs', queue) == 1 then QUEUES[queue] = 'known'
    else
      QUEUES[queue] = call('SCARD', B .. ':qs') + NEW_QUEUES < QUEUES_MAX and 'new'
      if QUEUES[queue] then NEW_QUEUES = NEW_QUEUES + 1 end
    end
  end
  return QUEUES[queue]
end
local function name_queue(queue)
  call('SADD', B .. ':qs', queue)
  QUEUES[queue], NEW_QUEUES = 'known', NEW_QUEUES - 1
end
