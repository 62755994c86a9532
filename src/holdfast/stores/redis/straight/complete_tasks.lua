-- complete_tasks: Completes tasks of which everything is as usual, and leaves the others untouched.
-- ARGV 2 how many texts there are in ARGV for each task; then a model for tasks that have these in
-- common, and its tasks, again and again. The model: how many tasks, the version that each has, the
-- next one, the status before, the status after, queue, type, names of the stages, index of the
-- last stage, worker, the seconds that the record stays, the checkpoint (`drop` or `none`), by how
-- much the number of checkpoints changes, where the stage, the result and the data go (`field`: into
-- the record; `key`: into a key of their own). A task: id, lease, its entry, fence, the time as in
-- updatedAt, the same as in statusSince, its name among the settled, the end of its retention,
-- microseconds in the status before, stage, result, data, what the record says of a run that went
-- straight through (`ran`), or else the element for its start, and the element for this version,
-- tenant, key.
-- Answers the numbers of the tasks that it left, and for those that failed a number and the error.
-- uses: lists server foreign_keys full_memory write_batch transition_counts tenant_line
-- keys: active by_status ckpt ckpt_meta data events kept key_of leases line lock resting result
--   settled stages stream task
-- constants: PLACE.leased PLACE.settled

local TEXTS = tonumber(ARGV[2])
local usual, left, failed = {}, {}, {}
local crowded = false  -- whether a tenant among them has more unsettled tasks
local dropped = {}  -- keys that go when the records have moved on

local function model_at(i)
  local m = {tasks = tonumber(ARGV[i]), expects = ARGV[i + 1], version = ARGV[i + 2],
    before = ARGV[i + 3], after = ARGV[i + 4], queue = ARGV[i + 5], type = ARGV[i + 6],
    stages = ARGV[i + 7], index = ARGV[i + 8], worker = ARGV[i + 9], seconds = ARGV[i + 10],
    checkpoint = ARGV[i + 11], saves = tonumber(ARGV[i + 12]), stage_in = ARGV[i + 13],
    result_in = ARGV[i + 14], data_in = ARGV[i + 15], next = i + 16}
  m.gone = {'leaseOwner', 'leaseId', 'progress'}
  if m.stage_in == 'key' then add(m.gone, 'stage0') end
  if m.result_in == 'key' then add(m.gone, 'result') end
  if m.data_in == 'key' then add(m.gone, 'data') end
  m.running, m.ended, m.stream = K.by_status(m.before), K.by_status(m.after), K.stream(m.queue)
  return m
end

-- Returns whether the record is as its holder knows it, and takes what is to be written.
local function is_usual(key, id, lease, m)
  local found = try('HMGET', key, 'version', 'leaseId', 'place')
  return found[1] == m.expects and found[2] == lease and found[3] == PLACE.leased
    and (m.stage_in == 'field' or type(try('HLEN', K.stages(id))) == 'number')
end

local function look_at_tasks()
  local i, number = 3, 0
  for _ = 1, #ARGV do
    if i > #ARGV then return end
    local m = model_at(i)
    i = m.next
    for _ = 1, m.tasks do
      number = number + 1
      local key = K.task(ARGV[i])
      if is_usual(key, ARGV[i], ARGV[i + 1], m) then
        usual[#usual + 1] = {number = number, at = i, key = key, model = m, tenant = ARGV[i + 15]}
      else
        left[#left + 1] = number
      end
      i = i + TEXTS
    end
  end
end

-- Keeps the tasks that are their tenant's active ones and hold its lock, or have no tenant.
local function look_at_tenants()
  local names, lines = {}, {}
  for _, one in ipairs(usual) do
    local tenant = one.tenant
    if tenant ~= '' then
      add(names, K.lock(tenant), K.active(tenant))
      add(lines, K.line(tenant), K.resting(tenant))
    end
  end
  if #names == 0 then return end
  local found, kept, n = try('MGET', unpack(names)), {}, 0
  for _, one in ipairs(usual) do
    local tenant, id = one.tenant, ARGV[one.at]
    if tenant == '' then
      kept[#kept + 1] = one
    else
      if found[n + 1] == id and found[n + 2] == id then
        kept[#kept + 1] = one
      else
        left[#left + 1] = one.number
      end
      n = n + 2
    end
  end
  usual, crowded = kept, try('EXISTS', unpack(lines)) ~= 0
end

-- Writes the events, as the first write of the task. False: the key is of another type.
local function log_events(one)
  local i = one.at
  if ARGV[i + 12] ~= '' then return true end
  local key, start, element = K.events(ARGV[i]), ARGV[i + 13], ARGV[i + 14]
  local reply
  if start == '' then reply = try('RPUSH', key, element) else reply = try('RPUSH', key, start, element) end
  return not is_strange(reply)
end

-- Puts a body into the record or into a key of its own.
local function write_body(fields, where, name, key_of, id, body)
  if where == 'field' then add(fields, name, body) else call('SET', key_of(id), body) end
end

local function write_record(one)
  local i, m, id = one.at, one.model, ARGV[one.at]
  local fields = {'stageNames', m.stages, 'version', m.version, 'updatedAt', ARGV[i + 4],
    'lastCompletedStageIndex', m.index, 'status', m.after, 'statusSince', ARGV[i + 5], 'ranBy', m.worker,
    'ranUnder', ARGV[i + 1], 'fence', ARGV[i + 3], 'place', PLACE.settled}
  if m.stage_in == 'field' then
    add(fields, 'stage0', ARGV[i + 9])
  else
    call('HSET', K.stages(id), m.index, ARGV[i + 9])
  end
  write_body(fields, m.result_in, 'result', K.result, id, ARGV[i + 10])
  write_body(fields, m.data_in, 'data', K.data, id, ARGV[i + 11])
  if ARGV[i + 12] ~= '' then add(fields, 'ran', ARGV[i + 12]) end
  call('HDEL', one.key, unpack(m.gone))
  call('HSET', one.key, unpack(fields))
end

-- Takes a task out of its place, with everything that says so but the record.
local function settle(one)
  local i, m, id = one.at, one.model, ARGV[one.at]
  take_from(K.leases, id)
  take_from(m.running, id)
  put_in(m.ended, id)
  put_in(K.settled, ARGV[i + 6], ARGV[i + 7])
  if ARGV[i + 2] ~= '' then
    local of = within(entries, m.stream)
    of[#of + 1] = ARGV[i + 2]
  end
  count(m.queue, PLACE.leased, -1)
  count(m.queue, PLACE.settled, 1)
  if m.saves ~= 0 then count(m.queue, 'checkpoints', m.saves) end
  count_move(m.before, m.after, m, tonumber(ARGV[i + 8]) / 1000000)
  if m.checkpoint == 'drop' then add(dropped, K.ckpt(id), K.ckpt_meta(id), K.kept(id)) end
  rings.rested = true
end

local function free_tenant(one)
  local tenant = one.tenant
  if tenant == '' then return end
  count(one.model.queue, 'locks', -1)
  add(dropped, K.lock(tenant))
  if crowded then advance(tenant, false) else add(dropped, K.active(tenant)) end
end

-- Lets the record, and the key that it was submitted with, end with the retention.
local function let_expire(one)
  local key, seconds = ARGV[one.at + 16], one.model.seconds
  call('EXPIRE', one.key, seconds)
  if key ~= '' then call('EXPIRE', K.key_of(one.tenant, key), seconds) end
end

-- Returns false if nothing was written.
local function complete(one)
  if not log_events(one) then return false end
  written = written + 1
  write_record(one)
  settle(one)
  free_tenant(one)
  let_expire(one)
  return true
end

look_at_tasks()
look_at_tenants()
get_through()
for _, one in ipairs(usual) do
  local done, answer = pcall(complete, one)
  if not done then
    note_denied(answer)
    add(failed, one.number, type(answer) == 'table' and answer.err or tostring(answer))
  elseif not answer then
    left[#left + 1] = one.number
  end
end
if #dropped > 0 then call('DEL', unpack(dropped)) end
finish()
return answered({left, failed})
