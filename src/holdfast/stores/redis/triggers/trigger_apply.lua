-- trigger_apply: Writes changes of triggers, each with its tasks in one step.
-- ARGV 2 the depth limit, 3 "1": some of them make tasks, 4… one change each. A change and its
-- tasks are one step: everything is compared before its first write. Answers for each: changed,
-- with an answer for each task; repeated or stale, with the record; overlapping, full, shut,
-- foreign or unreadable, with what is in the way.
-- uses: lists server full_memory submissions trigger_record intake
-- keys: audit task trigger
-- constants: UNFINISHED

local limit, changes, submitted, answers = tonumber(ARGV[2]), {}, 0, {}

if ARGV[3] ~= '1' then get_through() end

local function not_this_version(t)
  local found = try('HMGET', K.trigger(t.id), 'version', 'request')
  if found.err then return {'foreign', K.trigger(t.id)} end
  if found[1] == t.expects then return nil end
  -- Version 0: there must be none. One without a version is not to be written over either.
  if t.expects == '0' and call('EXISTS', K.trigger(t.id)) == 0 then return nil end
  local same = found[1] == t.version and (found[2] or '') == t.request
  local fields = call('HGETALL', K.trigger(t.id))
  return {same and 'repeated' or 'stale', #fields > 0 and fields}
end

local function is_unfinished(id)
  local place = try('HGET', K.task(id), 'place')
  return type(place) == 'string' and UNFINISHED[place]
end

-- Returns what keeps the tasks of a change out; what they would add is counted on the way.
local function no_way_in(t)
  local added, wrong = {}, nil
  for _, s in ipairs(t.tasks) do
    local known = answer_without(s, limit)
    if not known then
      depths[s.queue] = depths[s.queue] + 1
      added[s.queue] = (added[s.queue] or 0) + 1
    elseif known[1] == 'full' or known[1] == 'shut' or known[1] == 'foreign' then
      wrong = known
      break
    end
  end
  for queue, number in pairs(added) do depths[queue] = depths[queue] - number end
  return wrong
end

-- Names the last task. One whose key was used before does not exist: the last is the key's owner.
local function mind_last(t, last)
  if t.last and (last[1] == 'existing' or last[1] == 'conflict') then
    add(t.fields, 'lastTask', last[2])
  end
end

local function apply(t)
  local refused = not_this_version(t)
  if refused then return refused end
  if t.unless and is_unfinished(t.unless) then return {'overlapping', t.unless} end
  local wrong = no_way_in(t)
  if wrong then return wrong end
  local tasks = {}
  for i, s in ipairs(t.tasks) do tasks[i] = insert(s, limit) end
  if #tasks > 0 then mind_last(t, tasks[#tasks]) end
  write_trigger(t)
  if t.audit then call('RPUSH', K.audit, t.audit) end
  return {'changed', tasks}
end

for i = 4, #ARGV do
  changes[i - 3] = cmsgpack.unpack(ARGV[i])
  submitted = submitted + #changes[i - 3].tasks
end
return insert_all(submitted, function()
  for i, t in ipairs(changes) do answers[i] = apply(t) end
  return answers
end)
