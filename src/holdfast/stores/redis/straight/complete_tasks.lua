-- complete_tasks: Completes tasks of which everything is as usual, and leaves the others untouched.
-- ARGV 2 how many texts there are in ARGV for each task; then a model for tasks that have these in
-- common, and its tasks, again and again. The model: how many tasks, the version that each has, the
-- next one, the status before, the status after, queue, type, names of the stages, index of the
-- last stage, worker, the seconds that the record stays, the checkpoint (`drop` or `none`), by how
-- much the number of checkpoints changes, where the stage, the result and the data go (`field`: into
-- the record; `key`: into a key of their own), whether they have a tenant, a key, and have run
-- straight through (`yes` or `no`). A task: id, lease, its entry, fence, the time as in updatedAt,
-- the same as in statusSince, the end of its retention, its name among the settled, microseconds in
-- the status before, stage, result, data, tenant, key, and of a straight run what the record says
-- of it (`ran`), of another the element for its version; the element for its start.
-- Answers the numbers of the tasks that it left, and for those that failed a number and the error.
-- uses: lists server foreign_keys full_memory write_batch transition_counts tenant_line
-- keys: active by_status ckpt ckpt_meta data events kept key_of leases line lock resting result
--   settled stages stream task
-- constants: PLACE.leased PLACE.settled

local TEXTS = tonumber(ARGV[2])
local number, left, failed = 0, {}, {}
local unleased, settled = {}, {}  -- members that leave the leases, and those of the settled
local gone, come = {}, {}  -- members of the indexes by status
local dropped = {}  -- keys that go when the records have moved on

local function model_at(i)
  local m = {tasks = tonumber(ARGV[i]), expects = ARGV[i + 1], version = ARGV[i + 2],
    before = ARGV[i + 3], after = ARGV[i + 4], queue = ARGV[i + 5], type = ARGV[i + 6],
    stages = ARGV[i + 7], index = ARGV[i + 8], worker = ARGV[i + 9], seconds = ARGV[i + 10],
    drops = ARGV[i + 11] == 'drop', saves = tonumber(ARGV[i + 12]), stage_in = ARGV[i + 13],
    result_in = ARGV[i + 14], data_in = ARGV[i + 15], has_tenant = ARGV[i + 16] == 'yes',
    has_key = ARGV[i + 17] == 'yes', ran = ARGV[i + 18] == 'yes', first = i + 19, done = 0, dwelt = 0}
  m.gone = {'leaseOwner', 'leaseId', 'progress'}
  if m.stage_in == 'key' then add(m.gone, 'stage0') end
  if m.result_in == 'key' then add(m.gone, 'result') end
  if m.data_in == 'key' then add(m.gone, 'data') end
  m.is_short = m.ran and #m.gone == 3
  m.running, m.ended = within(gone, K.by_status(m.before)), within(come, K.by_status(m.after))
  m.stream = K.stream(m.queue)
  return m
end

-- Reads the locks and the active tasks of the tenants, and whether one has more unsettled tasks.
local function look_at_tenants(m)
  local names, lines = {}, {}
  for i = m.first + 12, m.first + m.tasks * TEXTS - 1, TEXTS do
    add(names, K.lock(ARGV[i]), K.active(ARGV[i]))
    add(lines, K.line(ARGV[i]), K.resting(ARGV[i]))
  end
  m.holders = try('MGET', unpack(names))
  m.crowded = try('EXISTS', unpack(lines)) ~= 0
end

-- Writes what stands beside the record, and returns the fields of the record for it. The events are
-- the first write: nil, and nothing was written, if their key is of another type.
local function write_bodies(m, i)
  local id, fields = ARGV[i], {}
  if m.ran then
    add(fields, 'ran', ARGV[i + 14])
  else
    local words = {ARGV[i + 14]}
    if ARGV[i + 15] ~= '' then table.insert(words, 1, ARGV[i + 15]) end
    if is_strange(try('RPUSH', K.events(id), unpack(words))) then return nil end
  end
  if m.stage_in == 'field' then
    add(fields, 'stage0', ARGV[i + 9])
  else
    call('HSET', K.stages(id), m.index, ARGV[i + 9])
  end
  if m.result_in == 'field' then
    add(fields, 'result', ARGV[i + 10])
  else
    call('SET', K.result(id), ARGV[i + 10])
  end
  if m.data_in == 'field' then
    add(fields, 'data', ARGV[i + 11])
  else
    call('SET', K.data(id), ARGV[i + 11])
  end
  return fields
end

local function write_record(key, m, i, ...)
  call('HDEL', key, unpack(m.gone))
  call('HSET', key, 'stageNames', m.stages, 'version', m.version, 'updatedAt', ARGV[i + 4],
    'lastCompletedStageIndex', m.index, 'status', m.after, 'statusSince', ARGV[i + 5], 'ranBy', m.worker,
    'ranUnder', ARGV[i + 1], 'fence', ARGV[i + 3], 'place', PLACE.settled, ...)
end

-- Takes a task out of its place, with everything that says so but the record.
local function settle(m, i)
  local id = ARGV[i]
  local n, ended = #unleased + 1, m.ended
  unleased[n] = id
  m.running[#m.running + 1] = id
  settled[2 * n - 1], settled[2 * n] = ARGV[i + 6], ARGV[i + 7]
  n = #ended
  ended[n + 1], ended[n + 2] = '0', id
  if ARGV[i + 2] ~= '' then
    local of = within(entries, m.stream)
    of[#of + 1] = ARGV[i + 2]
  end
  m.done, m.dwelt = m.done + 1, m.dwelt + tonumber(ARGV[i + 8])
  if m.drops then add(dropped, K.ckpt(id), K.ckpt_meta(id), K.kept(id)) end
end

local function free_tenant(m, tenant)
  count(m.queue, 'locks', -1)
  add(dropped, K.lock(tenant))
  if m.crowded then advance(tenant, false) else add(dropped, K.active(tenant)) end
end

-- Completes a task. False: it is not as its holder knows it (it is leased if it has that version and
-- that lease), or something stands in the way, and it was not touched.
local function complete(m, i)
  local id = ARGV[i]
  local key = K.task(id)
  local found = try('HMGET', key, 'version', 'leaseId')
  if found[1] ~= m.expects or found[2] ~= ARGV[i + 1] then return false end
  if m.has_tenant and (m.holders[m.at] ~= id or m.holders[m.at + 1] ~= id) then return false end
  if m.is_short then
    write_record(key, m, i, 'ran', ARGV[i + 14], 'stage0', ARGV[i + 9], 'result', ARGV[i + 10], 'data',
      ARGV[i + 11])
  else
    if m.stage_in == 'key' and type(try('HLEN', K.stages(id))) ~= 'number' then return false end
    local fields = write_bodies(m, i)
    if not fields then return false end
    write_record(key, m, i, unpack(fields))
  end
  written = written + 1
  settle(m, i)
  if m.has_tenant then free_tenant(m, ARGV[i + 12]) end
  call('EXPIRE', key, m.seconds)
  if m.has_key then call('EXPIRE', K.key_of(ARGV[i + 12], ARGV[i + 13]), m.seconds) end
  return true
end

local function count_done(m)
  if m.done == 0 then return end
  count(m.queue, PLACE.leased, -m.done)
  count(m.queue, PLACE.settled, m.done)
  if m.saves ~= 0 then count(m.queue, 'checkpoints', m.saves * m.done) end
  count_move(m.before, m.after, m, m.dwelt / 1000000, m.done)
  rings.rested = true
end

-- Completes the tasks of the model at a place in ARGV, and returns the place of the next model.
local function complete_model(i)
  local m = model_at(i)
  if m.has_tenant then look_at_tenants(m) end
  m.at = 1
  i = m.first
  for _ = 1, m.tasks do
    number = number + 1
    local done, answer = pcall(complete, m, i)
    if not done then
      note_denied(answer)
      add(failed, number, type(answer) == 'table' and answer.err or tostring(answer))
    elseif not answer then
      left[#left + 1] = number
    end
    i, m.at = i + TEXTS, m.at + 2
  end
  count_done(m)
  return i
end

local function complete_all()
  local i = 3
  for _ = 3, #ARGV do
    if i > #ARGV then return end
    i = complete_model(i)
  end
end

get_through()
complete_all()
if #dropped > 0 then call('DEL', unpack(dropped)) end
if #unleased > 0 then
  call('ZREM', K.leases, unpack(unleased))
  call('ZADD', K.settled, unpack(settled))
end
for key, ids in pairs(gone) do
  if #ids > 0 then follow('ZREM', key, unpack(ids)) end
end
for key, ids in pairs(come) do
  if #ids > 0 then follow('ZADD', key, unpack(ids)) end
end
finish()
return answered({left, failed})
