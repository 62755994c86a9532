-- salvage: ARGV 2 the task, 3 the digest of its record as it was read, 4 all statuses, 5 whether
-- the record as it was is kept, 6 what is left of it. Answers "done", "changed", or "gone".
-- The old record may lack anything, so it is looked for in every place.

local id, statuses, keep, t = ARGV[2], cmsgpack.unpack(ARGV[4]), ARGV[5], cmsgpack.unpack(ARGV[6])
local found = try('HGETALL', K.task(id))
if found.err or #found == 0 then return 'gone' end
if redis.sha1hex(table.concat(found, '\0')) ~= ARGV[3] then return 'changed' end

local old = {id = id}
for i = 1, #found, 2 do
  if found[i + 1] ~= '' then old[found[i]] = found[i + 1] end
end
old.queue = old.queue or 'default'

local places = {held = 1, ready = 1, line = 1, later = 1, leased = 1, parked = 1, settled = 1}

local function take_out_of_everything()
  local was
  local function from(place, removed)
    if removed == 1 then was = was or place end
  end
  from('leased', call('ZREM', K.leases, id))
  from('later', call('ZREM', K.retry, id))
  from('ready', call('ZREM', K.back(old.queue), id))
  if old.entry then
    local stream = K.stream(old.queue)
    try('XACK', stream, GROUP, old.entry)
    local removed = try('XDEL', stream, old.entry)
    from('ready', type(removed) == 'number' and removed or 0)
  end
  if old.tenantId then
    from('line', call('ZREM', K.line(old.tenantId), id))
    call('ZREM', K.resting(old.tenantId), id)
    unlock(old)
  end
  from('settled', old.status and call('ZREM', K.settled, grave(old)) or 0)
  from('parked', call('ZREM', K.suspended, id))
  call('ZREM', K.saved, id)
  was = places[old.place] and old.place or was
  if was then count(old.queue, was, -1) end
end

local function take_out_of_indexes()
  for _, status in ipairs(statuses) do call('ZREM', K.by_status(status), id) end
  if old.error then call('ZREM', K.by_error(old.error), id) end
  if old.planId then call('ZREM', K.by_plan(old.planId), id) end
  if old.tenantId then call('ZREM', K.by_tenant(old.tenantId), id) end
  call('SREM', K.by_day(string.sub(old.createdAt or '', 1, 10)), id)
end

local function put()
  local fields = t.fields
  local r = {id = id, tenantId = t.tenant, queue = t.queue, place = 'parked', holds = t.holds}
  r.order = t.order or whole(call('HINCRBY', K.meta, 'order', 1))
  add(fields, 'place', r.place, 'order', r.order, 'entry', '')
  call('PERSIST', K.task(id))
  if keep == '1' then call('RENAME', K.task(id), K.damaged(id)) else call('DEL', K.task(id)) end
  set(r, fields)
  count(r.queue, r.place, 1)
  call('ZADD', K.by_status(t.status), 0, id)
  call('ZADD', K.by_error(t.error), 0, id)
  call('ZADD', K.suspended, t.suspended_at, id)
  call('SADD', K.by_day(t.day), id)
  if t.tenant then call('ZADD', K.by_tenant(t.tenant), 0, id) end
  if t.plan then call('ZADD', K.by_plan(t.plan), 0, id) end
  if t.key then call('PERSIST', K.key_of(t.tenant or '', t.key)) end
  call('PERSIST', K.ckpt(id))
  call('PERSIST', K.ckpt_meta(id))
  return r
end

local function log_it()
  if not log_event(id, t.version, '', t.events) then
    call('RENAME', K.events(id), K.damaged(id .. ':events'))
    log_event(id, t.version, '', t.events)
  end
end

take_out_of_everything()
take_out_of_indexes()
local r = put()
log_it()
if t.before and t.before ~= t.status then
  count_move(t.before, t.status, wall - (tonumber(old.statusSince) or wall))
end
rest(r)
if old.tenantId and old.tenantId ~= t.tenant and call('GET', K.active(old.tenantId)) == id then
  advance(old.tenantId, nil)
end
finish()
return 'done'
