-- commit_stages: Commits stages of which everything is as usual, and leaves the others untouched.
-- ARGV 2 how many texts there are in ARGV for each task; then a model for tasks that have these in
-- common, and its tasks, again and again. The model: how many tasks, the version that each has, the
-- next one, queue, names of the stages, index of the stage, by how much the number of checkpoints
-- changes, the checkpoint's version, who wrote it, and its last stage. A task: id, lease, the time,
-- stage, checkpoint, the checkpoint's time, the element for its start, the element for this version.
-- Answers the end of each lease (nothing if it failed), the numbers of the tasks that it left, and
-- for those that failed a number and the error.
-- uses: lists server foreign_keys full_memory write_batch
-- keys: ckpt ckpt_meta events leases stages task

local TEXTS = tonumber(ARGV[2])
local ends, left, failed = {}, {}, {}

local function model_at(i)
  return {tasks = tonumber(ARGV[i]), expects = ARGV[i + 1], version = ARGV[i + 2],
    queue = ARGV[i + 3], stages = ARGV[i + 4], index = ARGV[i + 5], saves = tonumber(ARGV[i + 6]),
    checkpoint = ARGV[i + 7], saved_by = ARGV[i + 8], last = ARGV[i + 9], next = i + 10}
end

-- Returns whether the record is as its holder knows it (it is leased if it has that version and that
-- lease), and whether the keys beside it take what is to be written.
local function is_usual(i, m, key)
  local id = ARGV[i]
  local found = try('HMGET', key, 'version', 'leaseId')
  if found[1] ~= m.expects or found[2] ~= ARGV[i + 1] then return false end
  if type(try('HLEN', K.stages(id))) ~= 'number' then return false end
  local version = try('HGET', K.ckpt_meta(id), 'version')
  return version == false or (tonumber(version) or math.huge) < tonumber(m.checkpoint)
end

-- Writes the events, as the first write of the task. False: the key is of another type.
local function log_events(i)
  local key, start, element = K.events(ARGV[i]), ARGV[i + 6], ARGV[i + 7]
  if start == '' then return not is_strange(try('RPUSH', key, element)) end
  return not is_strange(try('RPUSH', key, start, element))
end

-- Returns the end of the lease; nil: the task is not as usual, and was not touched.
local function commit(i, m)
  local id = ARGV[i]
  local key = K.task(id)
  if not is_usual(i, m, key) or not log_events(i) then return nil end
  written = written + 1
  call('HSET', K.stages(id), m.index, ARGV[i + 3])
  call('SET', K.ckpt(id), ARGV[i + 4])
  call('HSET', K.ckpt_meta(id), 'version', m.checkpoint, 'executorInstance', m.saved_by,
    'lastCompletedStageIndex', m.last, 'timestamp', ARGV[i + 5])
  call('HSET', key, 'stageNames', m.stages, 'version', m.version, 'updatedAt', ARGV[i + 2],
    'lastCompletedStageIndex', m.index)
  if m.saves ~= 0 then count(m.queue, 'checkpoints', m.saves) end
  return call('ZSCORE', K.leases, id)
end

local function commit_all()
  local i, number = 3, 0
  for _ = 1, #ARGV do
    if i > #ARGV then return end
    local m = model_at(i)
    i = m.next
    for _ = 1, m.tasks do
      number = number + 1
      local done, answer = pcall(commit, i, m)
      ends[number] = done and answer or false
      if not done then
        note_denied(answer)
        add(failed, number, type(answer) == 'table' and answer.err or tostring(answer))
      elseif answer == nil then
        left[#left + 1] = number
      end
      i = i + TEXTS
    end
  end
end

get_through()
commit_all()
finish()
return answered({ends, left, failed})
