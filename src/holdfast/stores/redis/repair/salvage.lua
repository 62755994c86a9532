-- salvage: Replaces a record that cannot be read by what is left of it.
-- ARGV 2 the task, 3 the digest of its record as it was read, 4 all statuses, 5 whether the record
-- as it was is kept, 6 what is left of it. Answers "done", "changed", or "gone". The old record
-- may lack anything, so it is looked for in every place. One that has ended (it comes with what is
-- good of it) stays so: only the rest is put aside.
-- uses: grave lists numbers server foreign_keys record time active_task write_batch error_index
--   event_log tenant_lock transition_counts record_changes tenant_line
-- keys: back by_day by_error by_plan by_status by_tenant ckpt ckpt_meta damaged events key_of
--   leases line meta resting retry saved settled stream suspended task
-- constants: GROUP PLACE.later PLACE.leased PLACE.line PLACE.parked PLACE.ready PLACE.settled
--   PLACES

local id, statuses, keep, t = ARGV[2], cmsgpack.unpack(ARGV[4]), ARGV[5], cmsgpack.unpack(ARGV[6])
local found = try('HGETALL', K.task(id))
if found.err or #found == 0 then return 'gone' end
if redis.sha1hex(table.concat(found, '\0')) ~= ARGV[3] then return 'changed' end

local old = {id = id}
for i = 1, #found, 2 do
  if found[i + 1] ~= '' then old[found[i]] = found[i + 1] end
end
old.queue = old.queue or 'default'
know_lease(old)

local function has_saved(r) return (tonumber(r.lastCompletedStageIndex or '-1') or -1) >= 0 end

local function take_out_of_everything()
  local was
  local function from(place, removed)
    if removed == 1 then was = was or place end
  end
  from(PLACE.leased, call('ZREM', K.leases, id))
  from(PLACE.later, call('ZREM', K.retry, id))
  from(PLACE.ready, follow('ZREM', K.back(old.queue), id))
  if old.entry then
    local stream = K.stream(old.queue)
    try('XACK', stream, GROUP, old.entry)
    local removed = try('XDEL', stream, old.entry)
    from(PLACE.ready, type(removed) == 'number' and removed or 0)
  end
  if old.tenantId then
    from(PLACE.line, follow('ZREM', K.line(old.tenantId), id))
    follow('ZREM', K.resting(old.tenantId), id)
    unlock(old)
  end
  from(PLACE.settled, old.status and call('ZREM', K.settled, grave(old)) or 0)
  from(PLACE.parked, call('ZREM', K.suspended, id))
  was = PLACES[old.place] and old.place or was
  if not was then return end
  count(t.queue, was, -1)
  if was == PLACE.leased and old.tenantId then count(t.queue, 'locks', -1) end
  if was ~= PLACE.settled and has_saved(old) then count(t.queue, 'checkpoints', -1) end
end

local function take_out_of_indexes()
  for _, status in ipairs(statuses) do follow('ZREM', K.by_status(status), id) end
  if old.error then
    follow('ZREM', K.by_error(old.error), id)
    index_error_group(id, old.error, nil)
  end
  if old.planId then follow('ZREM', K.by_plan(old.planId), id) end
  if old.tenantId then follow('ZREM', K.by_tenant(old.tenantId), id) end
  follow('SREM', K.by_day(string.sub(old.createdAt or '', 1, 10)), id)
end

local function put_into_indexes(r)
  follow('ZADD', K.by_status(r.status), 0, id)
  if r.error then follow('ZADD', K.by_error(r.error), 0, id) end
  index_error_group(id, nil, r.suspendedAt and r.error)
  if r.planId then follow('ZADD', K.by_plan(r.planId), 0, id) end
  if r.tenantId then follow('ZADD', K.by_tenant(r.tenantId), 0, id) end
  follow('SADD', K.by_day(string.sub(r.createdAt, 1, 10)), id)
end

local function written_down()
  set({id = id}, t.fields)
  local r = read(id)
  count(r.queue, r.place, 1)
  if r.place ~= PLACE.settled and has_saved(r) then count(r.queue, 'checkpoints', 1) end
  put_into_indexes(r)
  return r
end

local function suspend()
  call('PERSIST', K.task(id))
  if keep == '1' then call('RENAME', K.task(id), K.damaged(id)) else call('DEL', K.task(id)) end
  local r = written_down()
  call('ZADD', K.suspended, t.suspended_at, id)
  call('ZREM', K.saved, id)
  if r.key then call('PERSIST', K.key_of(r.tenantId or '', r.key)) end
  call('PERSIST', K.ckpt(id))
  call('PERSIST', K.ckpt_meta(id))
  return r
end

local function log_it()
  if not log_event(old, t.version, '', t.events) then
    call('RENAME', K.events(id), K.damaged(id .. ':events'))
    log_event(old, t.version, '', t.events)
  end
end

-- In place, as the server lets the record go at its time.
local function stay_settled()
  if old.ran then  -- it leans on fields that may be put aside now
    log_elements(id, unpack(unlogged_of(old)))
    call('HDEL', K.task(id), 'ran')
  end
  local good, bad = {}, {}
  for _, name in ipairs(t.good) do good[name] = true end
  for i = 1, #found, 2 do
    if not good[found[i]] then
      call('HSET', K.damaged(id), found[i], found[i + 1])
      bad[found[i]] = true
    end
  end
  for i = 1, #t.fields, 2 do bad[t.fields[i]] = nil end
  for name in pairs(bad) do call('HDEL', K.task(id), name) end
  local r = written_down()
  call('ZADD', K.settled, decimal(tonumber(r.settledAt) + tonumber(r.keepSeconds)), grave(r))
  written = written + 1
end

take_out_of_everything()
take_out_of_indexes()
local order = t.order or whole(call('HINCRBY', K.meta, 'order', 1))
add(t.fields, 'place', t.place, 'order', order, 'entry', '')
if t.good then
  stay_settled()
else
  local r = suspend()
  log_it()
  if t.before and t.before ~= t.status then
    count_move(t.before, t.status, r, wall - (tonumber(old.statusSince) or wall))
  end
  release_line(r)
  if old.tenantId and old.tenantId ~= r.tenantId and active_of(old.tenantId) == id then
    advance(old.tenantId, nil)
  end
end
finish()
count_error_groups()
return 'done'
