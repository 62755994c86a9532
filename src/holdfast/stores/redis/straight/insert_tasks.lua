-- insert_tasks: Inserts tasks that are as usual, all of them or none.
-- ARGV 2 the depth limit, 3 when the sender gives up (empty: nobody knows), 4 the day, 5 how many
-- models there are. Then the models, numbered from 1: queue, '1' if its tasks have a tenant, '1' if
-- they have a key, the words of one task, the words of the fields that its tasks share, these fields
-- (names and values, beginning with type, planId and status). Then the tasks: the model's number, id,
-- payload, createdAt, statusSince, the key's digest if there is a key, and the fields of its own
-- (names and values, beginning with tenantId and key if it has them).
-- Answers `inserted`, or `unusual` and why: then nothing was written.
-- uses: foreign_keys server
-- keys: active bell by_day by_plan by_status by_tenant counts key_of line meta payload queues stream
--   switches task tombstone
-- constants: PLACE.line PLACE.ready RESTING RINGS WAITING

local words, models, queues, first, tasks = #ARGV, {}, {}, 6, 0
local names, texts, leaders, tenants = {}, {}, {}, {}

local function unusual(why) return {'answer', {'unusual', why}} end
local function is_refused(reply) return type(reply) == 'table' and reply.err ~= nil end

for n = 1, tonumber(ARGV[5]) do
  local queue, keyed, fields = ARGV[first], ARGV[first + 2] == '1', first + 5
  local last = first + 4 + tonumber(ARGV[first + 4])
  queues[queue] = queues[queue] or {ready = 0, line = 0}
  models[tostring(n)] = {queue = queues[queue], stream = K.stream(queue), keyed = keyed,
    tenanted = ARGV[first + 1] == '1', own = keyed and 6 or 5, width = tonumber(ARGV[first + 3]),
    fields = fields, last = last, type = ARGV[fields + 1], plan = ARGV[fields + 3], first = {}}
  first = last + 1
end
local status = ARGV[models['1'].fields + 5]

-- Every look comes before every write.

if ARGV[3] ~= '' then
  local time = call('TIME')
  if time[1] + time[2] / 1000000 > tonumber(ARGV[3]) then return unusual(1) end
end

local at = first
while at <= words do
  local m, id = models[ARGV[at]], ARGV[at + 1]
  local n, tenant = #names, m.tenanted and ARGV[at + m.own + 1]
  names[n + 1], names[n + 2] = K.task(id), K.tombstone(id)
  texts[#texts + 1] = K.payload(id)
  texts[#texts + 1] = ARGV[at + 2]
  if m.keyed then
    local name = K.key_of(tenant or '', ARGV[at + m.own + (tenant and 3 or 1)])
    names[n + 3] = name
    texts[#texts + 1] = name
    texts[#texts + 1] = id .. ' ' .. ARGV[at + 5]
  end
  if tenant and not leaders[tenant] then
    leaders[tenant] = id
    tenants[#tenants + 1] = tenant
  end
  m.queue.ready = m.queue.ready + 1  -- those in a line are taken away again
  tasks = tasks + 1
  at = at + m.width
end

if call('EXISTS', unpack(names)) > 0 then return unusual(2) end

for queue, of in pairs(queues) do
  if call('HGET', K.switches, 'intake ' .. queue) then return unusual(3) end
  if is_refused(try('XLEN', K.stream(queue))) then return unusual(4) end
  local fields, depth = {}, of.ready
  for place in pairs(WAITING) do fields[#fields + 1] = queue .. ' ' .. place end
  for _, waiting in ipairs(call('HMGET', K.counts, unpack(fields))) do depth = depth + (waiting or 0) end
  if depth > tonumber(ARGV[2]) then return unusual(5) end
end

-- A line is closed by an active task that does not rest, and by nothing else.
if #tenants > 0 then
  local keys = {}
  for n, tenant in ipairs(tenants) do keys[n] = K.active(tenant) end
  local known = call('EXISTS', unpack(keys))
  local actives = known > 0 and try('MGET', unpack(keys)) or {}
  if actives.err then return unusual(6) end
  for n, tenant in ipairs(tenants) do
    if actives[n] then
      local active = try('HMGET', K.task(actives[n]), 'place', 'hold')
      if active.err or not active[1] or RESTING[active[1]] and active[2] ~= 'true' then
        return unusual(7)
      end
      leaders[tenant], known = actives[n], known - 1
    else
      texts[#texts + 1] = keys[n]
      texts[#texts + 1] = leaders[tenant]
    end
  end
  if known > 0 then return unusual(8) end  -- a key of another type
end

local members, ids = {}, {}

local function put_in(key, score, id)
  local of = members[key]
  if not of then
    of = {}
    members[key] = of
  end
  local n = #of
  of[n + 1], of[n + 2] = score, id
end

-- Writes the record: a copy of the first of its model in this place, but for the fields of its own.
local function write_record(m, at, order, place, entry)
  local name, first = K.task(ARGV[at + 1]), m.first[place]
  if first then call('COPY', first, name) end
  if entry then
    call('HSET', name, 'order', order, 'entry', entry, 'createdAt', ARGV[at + 3], 'statusSince',
      ARGV[at + 4], unpack(ARGV, at + m.own, at + m.width - 1))
  else
    call('HSET', name, 'order', order, 'createdAt', ARGV[at + 3], 'statusSince', ARGV[at + 4],
      unpack(ARGV, at + m.own, at + m.width - 1))
  end
  if not first then
    m.first[place] = name
    call('HSET', name, 'place', place, unpack(ARGV, m.fields, m.last))
  end
end

local function write_task(m, at, order)
  local id, tenant = ARGV[at + 1], m.tenanted and ARGV[at + m.own + 1]
  if tenant and leaders[tenant] ~= id then
    write_record(m, at, order, PLACE.line)
    put_in(K.line(tenant), order, id)
    m.queue.ready, m.queue.line = m.queue.ready - 1, m.queue.line + 1
  else
    local entry = call('XADD', m.stream, '*', 'taskId', id, 'type', m.type)
    write_record(m, at, order, PLACE.ready, entry)
  end
  put_in(K.by_status(status), '0', id)
  if tenant then put_in(K.by_tenant(tenant), '0', id) end
  if m.plan ~= '' then put_in(K.by_plan(m.plan), '0', id) end
  ids[#ids + 1] = id
end

local function write_tasks(order)
  local at = first
  while at <= words do
    local m = models[ARGV[at]]
    order = order + 1
    write_task(m, at, string.format('%.0f', order))
    at = at + m.width
  end
end

-- The first write may be refused, because the memory is full, for example. What the general scripts
-- do without comes first, on keys that do not exist.
local none = K.meta .. ':none'
if tasks > 1 and is_refused(try('COPY', none, none .. ':copy')) then return unusual(9) end
local order = try('HINCRBY', K.meta, 'order', tasks)
if is_refused(order) then return unusual(10) end
if is_refused(try('MSET', unpack(texts))) then
  call('HINCRBY', K.meta, 'order', -tasks)
  return unusual(11)
end

if not pcall(write_tasks, order - tasks) then  -- none of it was there before
  for n = 1, #texts, 2 do names[#names + 1] = texts[n] end
  try('DEL', unpack(names))
  call('HINCRBY', K.meta, 'order', -tasks)
  return unusual(12)
end

-- What follows from the records comes last.

follow('SADD', K.by_day(ARGV[4]), unpack(ids))
for key, of in pairs(members) do follow('ZADD', key, unpack(of)) end
local writes, rings = call('HINCRBY', K.meta, 'writes', tasks), {}
for queue, of in pairs(queues) do
  if of.ready > 0 then rings.ready = '1' end
  for place, by in pairs({[PLACE.ready] = of.ready, [PLACE.line] = of.line}) do
    local first = by > 0 and call('HINCRBY', K.counts, queue .. ' ' .. place, by) == by
    if first then call('SADD', K.queues, queue) end
  end
end
for topic, one in pairs(rings) do call('XADD', K.bell, 'MAXLEN', '~', RINGS, '*', topic, one) end
return {'answer', {'inserted'}, 'writes', writes, 'written', tasks, 'notices', strange_keys()}
