-- A tenant's line, when the task before it comes to rest.
-- uses: server foreign_keys active_task write_batch queue_entry
-- keys: line resting task
-- constants: PLACE.line PLACE.settled RESTING

-- Pops the first of a line, and all that is unreadable before it, which is left to the doctor.
local function next_in_line(tenant)
  for _ = 1, 100 do
    local popped = follow('ZPOPMIN', K.line(tenant))
    if not popped or #popped == 0 then return nil end
    local id = popped[1]
    local found = try('HMGET', K.task(id), 'place', 'queue', 'type', 'version', 'status', 'order')
    if found[1] == PLACE.line and tonumber(found[4]) and found[5] and tonumber(found[6]) then
      local queue = found[2] or 'default'
      count(queue, PLACE.line, -1)
      return {id = id, tenantId = tenant, queue = queue, type = found[3], order = found[6]}
    end
  end
end

-- Lets the next of a line through. The record of the active task must be written: this reads it.
local function advance(tenant, active)
  if line_is_open(active) then
    local first = next_in_line(tenant)
    if first then
      to_queue(first)
      call('HSET', K.task(first.id), 'place', first.place, 'entry', first.entry or '')
      return
    end
  end
  if not active then
    local newest = follow('ZREVRANGE', K.resting(tenant), 0, 0)
    set_active(tenant, newest and newest[1])
  end
end

-- Notes that a task cannot run any more; its tenant's next may be let through.
local function release_line(r)
  rings.rested = true
  if not r.tenantId then return end
  if RESTING[r.place] and not r.holds then
    follow('ZADD', K.resting(r.tenantId), r.order, r.id)
  end
  local active = active_of(r.tenantId)
  if active == r.id then advance(r.tenantId, r.place ~= PLACE.settled and active) end
end
