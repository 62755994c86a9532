-- insert: ARGV 2 the depth limit, 3 when the sender gives up (empty: nobody knows), 4… one
-- submission each. What comes later than that is not accepted: its sender has been told so.

local limit, gives_up = tonumber(ARGV[2]), tonumber(ARGV[3])
local depths, usable, days, answers = {}, {}, {}, {}

if gives_up and now > gives_up then return {{'late', decimal(now)}, 0, 0} end

-- Looked at before anything is written: what nobody could find must not be accepted.
local function is_usable(key, command)
  if usable[key] == nil then
    usable[key] = not is_strange(try(command, key))
  end
  return usable[key]
end

local function depth(queue)
  if not depths[queue] then
    local n = call('HMGET', K.counts, queue .. ' ready', queue .. ' line', queue .. ' later')
    depths[queue] = tonumber(n[1] or '0') + tonumber(n[2] or '0') + tonumber(n[3] or '0')
  end
  return depths[queue]
end

-- The task that a key belongs to, with its digest, if its time is not over.
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
  last = last or call('HINCRBY', K.meta, 'order', #ARGV - 3)
  order = (order or last - (#ARGV - 3)) + 1
  return whole(order)
end

local function insert(s)
  if call('EXISTS', K.task(s.id), K.tombstone(s.id)) > 0 then return {'inserted', s.id} end
  if not is_usable(K.stream(s.queue), 'XLEN') then return {'foreign', K.stream(s.queue)} end
  if s.key then
    local name = K.key_of(s.tenant or '', s.key)
    if not is_usable(name, 'GET') then return {'foreign', name} end
    local id, digest = first_of(s.tenant or '', s.key)
    if id then return {digest == s.digest and 'existing' or 'conflict', id} end
  end
  if depth(s.queue) >= limit then return {'full', s.queue} end

  local r = {id = s.id, tenantId = s.tenant, queue = s.queue, type = s.type}
  r.order = next_order()
  if s.held then
    r.place = 'held'
    count(r.queue, 'held', 1)
  else
    enter(r)
    depths[s.queue] = depths[s.queue] + 1
  end
  local fields = s.fields
  add(fields, 'place', r.place, 'order', r.order)
  if r.entry then add(fields, 'entry', r.entry) end
  call('HSET', K.task(s.id), unpack(fields))
  call('SET', K.payload(s.id), s.payload)
  if s.events then log_event(r, s.version, s.id, s.events) end
  if s.key then call('SET', K.key_of(s.tenant or '', s.key), s.id .. ' ' .. s.digest) end
  if not s.events then written = written + 1 end
  index_status(s.id, nil, s.status)
  days[s.day] = days[s.day] or {}
  add(days[s.day], s.id)
  if s.error then put_in(K.by_error(s.error), s.id) end
  if s.suspended_at then put_in(K.suspended, s.id, s.suspended_at) end
  if s.tenant then put_in(K.by_tenant(s.tenant), s.id) end
  if s.plan then put_in(K.by_plan(s.plan), s.id) end
  return {'inserted', s.id}
end

local done, wrong = pcall(function()
  for i = 4, #ARGV do answers[#answers + 1] = insert(cmsgpack.unpack(ARGV[i])) end
end)
if order and order < last then call('HINCRBY', K.meta, 'order', order - last) end
for day, ids in pairs(days) do follow('SADD', K.by_day(day), unpack(ids)) end
finish()
if not done then return failed(wrong) end  -- what was inserted before is found by a repeat
return {answers, writes, written, told()}
