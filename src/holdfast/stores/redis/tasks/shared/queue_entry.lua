-- The way into a queue. Only the first of a tenant's line is ever in a queue.
-- uses: server foreign_keys active_task write_batch
-- keys: line stream task
-- constants: PLACE.line PLACE.ready RESTING

local function line_is_open(active)
  if not active then return true end
  local a = try('HMGET', K.task(active), 'place', 'hold')
  return a.err or not a[1] or (RESTING[a[1]] and a[2] ~= 'true')
end

-- Queues a task as its tenant's active one: sets r.place and r.entry, and writes no record.
local function to_queue(r)
  if r.tenantId then set_active(r.tenantId, r.id) end
  r.place = PLACE.ready
  r.entry = follow('XADD', K.stream(r.queue), '*', 'taskId', r.id, 'type', r.type or '')
  count(r.queue, PLACE.ready, 1)
  rings.ready = true
end

-- Returns whether a task would have to wait behind its tenant's active task.
local function would_wait(r)
  if not r.tenantId then return false end
  local active = active_of(r.tenantId)
  return active ~= r.id and not line_is_open(active)
end

-- Puts a task into its queue, or behind its tenant's active task.
local function enter(r)
  if would_wait(r) then
    follow('ZADD', K.line(r.tenantId), r.order, r.id)
    r.place, r.entry = PLACE.line, nil
    count(r.queue, PLACE.line, 1)
    return
  end
  to_queue(r)
end
