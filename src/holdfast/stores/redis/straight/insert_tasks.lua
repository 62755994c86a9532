-- insert_tasks: Inserts tasks that are as usual, all of them or none.
-- ARGV 2 the depth limit, 3 when the sender gives up (empty: nobody knows), 4 the day, 5 how many
-- tasks there are, 6 how many models. Then the models: a name, queue, where a task's own fields begin,
-- how many words a task has, type, planId, status, version, stageNames, and how many words of other
-- fields its tasks share, and these (names and values). Then the tasks: the model's name, id, payload,
-- createdAt, statusSince, the key's digest if there is a key, and the task's own fields (names and
-- values, beginning with tenantId and key if it has them).
-- Answers `inserted`, or `unusual` and why: then nothing was written.
-- uses: foreign_keys server
-- keys: active bell by_day by_plan by_status by_tenant counts key_of line meta payload queues stream
--   switches task tombstone
-- constants: PLACE.line PLACE.ready RESTING RINGS WAITING

local words, tasks, models, queues, first = #ARGV, ARGV[5], {}, {}, 7
local names, texts, leaders, tenants = {}, {}, {}, {}

local function unusual(why) return {'answer', {'unusual', why}} end
local function is_refused(reply) return type(reply) == 'table' and reply.err ~= nil end

for _ = 1, tonumber(ARGV[6]) do
  local queue, last = ARGV[first + 1], first + 9 + ARGV[first + 9]
  local of = queues[queue] or {stream = K.stream(queue), ready = 0, line = 0}
  queues[queue] = of
  models[ARGV[first]] = {queue = of, own = tonumber(ARGV[first + 2]), width = tonumber(ARGV[first + 3]),
    first = first, last = last, ready = false, line = false}
  first = last + 1
end

-- Every look comes before every write.

if ARGV[3] ~= '' then
  local time = call('TIME')
  if time[1] + time[2] / 1000000 > tonumber(ARGV[3]) then return unusual(1) end
end

local at = first
while at <= words do
  local m, id, n = models[ARGV[at]], ARGV[at + 1], #names
  local own, t = at + m.own, #texts
  local tenant = ARGV[own] == 'tenantId' and ARGV[own + 1]
  names[n + 1], names[n + 2] = K.task(id), K.tombstone(id)
  texts[t + 1], texts[t + 2] = K.payload(id), ARGV[at + 2]
  if m.own > 5 then
    local name = K.key_of(tenant or '', ARGV[tenant and own + 3 or own + 1])
    names[n + 3], texts[t + 3], texts[t + 4] = name, name, id .. ' ' .. ARGV[at + 5]
  end
  if tenant and not leaders[tenant] then
    leaders[tenant] = id
    tenants[#tenants + 1] = tenant
  end
  m.queue.ready = m.queue.ready + 1  -- those in a line are taken away again
  at = at + m.width
end

if call('EXISTS', unpack(names)) > 0 then return unusual(2) end

for queue, of in pairs(queues) do
  if call('HGET', K.switches, 'intake ' .. queue) then return unusual(3) end
  if is_refused(try('XLEN', of.stream)) then return unusual(4) end
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

-- Writes the records: each is a copy of the first of its model in its place, but for its own fields.
local function write_tasks(order)
  local at = first
  while at <= words do
    local m, id = models[ARGV[at]], ARGV[at + 1]
    local own, last, queue, model = at + m.own, at + m.width - 1, m.queue, m.first
    local tenant, place, entry = ARGV[own] == 'tenantId' and ARGV[own + 1], PLACE.ready, nil
    order = order + 1
    local name, number = K.task(id), string.format('%.0f', order)
    if tenant and leaders[tenant] ~= id then
      place = PLACE.line
      queue.ready, queue.line = queue.ready - 1, queue.line + 1
      put_in(K.line(tenant), number, id)
    else
      entry = call('XADD', queue.stream, '*', 'taskId', id, 'type', ARGV[model + 4])
    end
    local where, is_where = entry and 'entry' or 'place', entry or place  -- no entry: the place twice
    if m[place] then
      call('COPY', m[place], name)
      call('HSET', name, 'order', number, where, is_where, 'createdAt', ARGV[at + 3], 'statusSince',
        ARGV[at + 4], unpack(ARGV, own, last))
    else
      m[place] = name
      call('HSET', name, 'order', number, where, is_where, 'createdAt', ARGV[at + 3], 'statusSince',
        ARGV[at + 4], 'place', place, 'type', ARGV[model + 4], 'planId', ARGV[model + 5], 'status',
        ARGV[model + 6], 'version', ARGV[model + 7], 'stageNames', ARGV[model + 8],
        unpack(ARGV, model + 10, m.last))
      if own <= last then call('HSET', name, unpack(ARGV, own, last)) end
    end
    put_in(K.by_status(ARGV[model + 6]), '0', id)
    if tenant then put_in(K.by_tenant(tenant), '0', id) end
    if ARGV[model + 5] ~= '' then put_in(K.by_plan(ARGV[model + 5]), '0', id) end
    ids[#ids + 1] = id
    at = last + 1
  end
end

-- The first write may be refused, because the memory is full, for example. What the general scripts
-- do without comes first, on keys that do not exist.
local none = K.meta .. ':none'
if tasks ~= '1' and is_refused(try('COPY', none, none .. ':copy')) then return unusual(9) end
local order = try('HINCRBY', K.meta, 'order', tasks)
if is_refused(order) then return unusual(10) end
if is_refused(try('MSET', unpack(texts))) then
  call('HINCRBY', K.meta, 'order', '-' .. tasks)
  return unusual(11)
end

-- Takes back what was written: none of it was there before.
local function take_back()
  local at = first
  while at <= words do
    local m = models[ARGV[at]]
    local entry = try('HGET', K.task(ARGV[at + 1]), 'entry')
    if type(entry) == 'string' then try('XDEL', m.queue.stream, entry) end
    at = at + m.width
  end
  for n = 1, #texts, 2 do names[#names + 1] = texts[n] end
  try('DEL', unpack(names))
  call('HINCRBY', K.meta, 'order', '-' .. tasks)
end

if not pcall(write_tasks, order - tasks) then
  take_back()
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
return {'answer', {'inserted'}, 'writes', writes, 'written', tonumber(tasks), 'notices', strange_keys()}
