-- Submissions: each is looked at before anything of it is written.
-- uses: lists numbers server foreign_keys time write_batch error_index event_log queue_entry
--   status_index
-- keys: by_day by_error by_plan by_tenant key_of meta payload suspended task tombstone
-- constants: PLACE.held

local depths, usable, days = {}, {}, {}
local submits = 0  -- how many there may be from here on

-- Returns whether a key is ours: a task that nobody could find must not be accepted.
local function is_usable(key, command)
  if usable[key] == nil then
    usable[key] = not is_strange(try(command, key))
  end
  return usable[key]
end

-- Returns the task that a key belongs to, with its digest, if its time is not over.
local function first_of(tenant, key)
  local found = call('GET', K.key_of(tenant, key))
  if not found then return nil end
  local id, digest = string.match(found, '^(%S+) (.*)$')
  if call('EXISTS', K.task(id)) == 1 then return id, digest end
  local till = call('HGET', K.tombstone(id), 'until')
  if till and tonumber(till) > wall then return id, digest end
end

-- Numbers are taken for all at once, by the first that needs one; the rest is given back.
local order, last

local function next_order()
  if order == last then
    last = call('HINCRBY', K.meta, 'order', submits)
    order = last - submits
  end
  order = order + 1
  return whole(order)
end

-- Returns the answer to a submission that is known, or whose key cannot be read, or nil.
local function met_before(s)
  if call('EXISTS', K.task(s.id), K.tombstone(s.id)) > 0 then return {'inserted', s.id} end
  if s.key then
    local name = K.key_of(s.tenant or '', s.key)
    if not is_usable(name, 'GET') then return {'foreign', name} end
    local id, digest = first_of(s.tenant or '', s.key)
    if id then return {digest == s.digest and 'existing' or 'conflict', id} end
  end
end

local function write_record(s, r)
  if s.held then
    r.place = PLACE.held
    count(r.queue, PLACE.held, 1)
  else
    enter(r)
    if depths[s.queue] then depths[s.queue] = depths[s.queue] + 1 end
  end
  local fields = s.fields
  add(fields, 'place', r.place, 'order', r.order)
  if r.entry then add(fields, 'entry', r.entry) end
  call('HSET', K.task(s.id), unpack(fields))
end

local function accept(s)
  local r = {id = s.id, tenantId = s.tenant, queue = s.queue, type = s.type}
  r.order = next_order()
  call('SET', K.payload(s.id), s.payload)
  local done, wrong = pcall(write_record, s, r)
  if not done then  -- refused in the middle: without a record it is no task, and has no payload
    try('DEL', K.payload(s.id))
    error(wrong)
  end
  if s.events then log_event(r, s.version, s.id, s.events) end
  if s.key then call('SET', K.key_of(s.tenant or '', s.key), s.id .. ' ' .. s.digest) end
  if not s.events then written = written + 1 end
  index_status(s.id, nil, s.status)
  days[s.day] = days[s.day] or {}
  add(days[s.day], s.id)
  if s.error then put_in(K.by_error(s.error), s.id) end
  if s.suspended_at then
    put_in(K.suspended, s.id, s.suspended_at)
    index_error_group(s.id, nil, s.error)
  end
  if s.saves then count(r.queue, 'checkpoints', s.saves) end
  if s.tenant then put_in(K.by_tenant(s.tenant), s.id) end
  if s.plan then put_in(K.by_plan(s.plan), s.id) end
end

-- Writes what follows from all submissions; finish() comes after it.
local function end_submits()
  if order and order < last then call('HINCRBY', K.meta, 'order', order - last) end
  for day, ids in pairs(days) do follow('SADD', K.by_day(day), unpack(ids)) end
end
