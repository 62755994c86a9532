-- Transitions, each compared with the record before its first write.
--
-- A holder sends what it knows of the record (`was`): while its version and its lease are on it, the
-- record is that, and need not be read.
-- uses: lists numbers server foreign_keys full_memory record request_log time write_bodies
--   write_batch burial error_index event_log queue_entry status_index tenant_lock
--   transition_counts departure tenant_line
-- keys: by_error ckpt ckpt_meta kept key_of leases payload retry saved settled stages suspended
--   task tombstone
-- constants: NEXT.gone NEXT.later NEXT.ready NEXT.settled NEXT.stay PLACE.later PLACE.leased
--   PLACE_AFTER

local tombstone_seconds, ckpt_seconds = tonumber(ARGV[2]), ARGV[3]
local follow_ups  -- set by apply_with_follow_ups.lua: how tasks that follow go in

-- Returns a record as it is, for a refused writer: its fields, and the end of its lease.
local function shown(id)
  local fields = try('HGETALL', K.task(id))
  if fields.err or #fields == 0 then return false end
  return {fields, call('ZSCORE', K.leases, id)}
end

local function answer(word, id) return {word, shown(id)} end

local function refuse(t, r, wrong)
  if wrong then return {'unreadable', wrong} end
  if not r then
    if call('HGET', K.tombstone(t.id), 'request') == t.request then return {NEXT.gone} end
    return {'stale', false}
  end
  if r.version ~= t.expects then
    local known = request_of(r, t.version) == t.request
    return answer(known and 'repeated' or 'stale', t.id)
  end
  if t.lease then
    if r.leaseId ~= t.lease or r.place ~= PLACE.leased then return answer('stale', t.id) end
  elseif r.place == PLACE.leased and t.next ~= NEXT.stay then
    return answer('stale', t.id)
  end
  if t.not_without_checkpoint and call('EXISTS', K.ckpt(t.id)) == 0 then
    return answer('no-checkpoint', t.id)
  end
  if t.not_if_moved_on and is_superseded(r) then return answer('moved-on', t.id) end
  if t.not_if_busy and t.next == NEXT.ready and would_wait(r) then return answer('busy', t.id) end
  if t.stage and type(try('HLEN', K.stages(t.id))) ~= 'number' then
    return {'unreadable', K.stages(t.id) .. ' is of another type'}
  end
  if t.checkpoint and t.checkpoints ~= 'drop' then
    local version = try('HGET', K.ckpt_meta(t.id), 'version')
    if type(version) == 'table' then return {'unreadable', version.err} end
    version = tonumber(version or '0')
    if version >= tonumber(t.checkpoint_version) then return answer('stale', t.id) end
  end
  if t.payload and type(try('GET', K.payload(t.id))) == 'table' then
    return {'unreadable', K.payload(t.id) .. ' is of another type'}
  end
  local foreign = t.follows and follow_ups.in_way_of(t.follows)
  if foreign then return {'unreadable', foreign .. ' is of another type'} end
end

local function index(t, r)
  index_status(t.id, r.status, t.status)
  if r.error ~= t.error then
    if r.error then take_from(K.by_error(r.error), t.id) end
    if t.error then put_in(K.by_error(t.error), t.id) end
  end
  if t.suspended_at then
    put_in(K.suspended, t.id, t.suspended_at)
  elseif r.suspendedAt then
    take_from(K.suspended, t.id)
  end
  if r.suspendedAt or t.suspended_at then
    index_error_group(t.id, r.suspendedAt and r.error, t.suspended_at and t.error)
  end
  if r.status ~= t.status then count_move(r.status, t.status, r, t.dwelt) end
  if t.saves then count(r.queue, 'checkpoints', t.saves) end
end

local function settle(t, r)
  put_in(K.settled, t.grave, t.till)
  call('EXPIRE', t.record, t.seconds)
  if r.key then call('EXPIRE', K.key_of(r.tenantId or '', r.key), t.seconds) end
  if t.checkpoints ~= 'none' and call('EXPIRE', K.ckpt(t.id), ckpt_seconds) == 1 then
    call('EXPIRE', K.ckpt_meta(t.id), ckpt_seconds)
    call('SET', K.kept(t.id), call('GET', K.ckpt(t.id)))
    call('ZADD', K.saved, t.settled_at, t.id)
  end
end

-- Ends the lease of a task that settles.
local function end_lease(r, fields, gone)
  local fence = string.match(r.leaseId, ':(%x+):%d+$')
  add(fields, 'ranUnder', r.leaseId, 'fence', fence and whole(tonumber(fence, 16)) or '0')
  local n = #gone
  gone[n + 1], gone[n + 2], gone[n + 3] = 'leaseOwner', 'leaseId', 'progress'
  return gone
end

-- Writes the record and puts the task into its place.
local function put(t, r)
  local fields, gone = t.fields, t.gone
  if t.next == NEXT.settled and r.leaseId then gone = end_lease(r, fields, gone or {}) end
  if t.next ~= NEXT.stay then
    if r.place == PLACE.later then
      gone = gone or {}
      gone[#gone + 1] = 'due'
      r.due = nil
    end
    take_out(r)
  end
  if gone then call('HDEL', t.record, unpack(gone)) end
  r.status, r.error = t.status, t.error
  if t.next == NEXT.ready then
    enter(r)
  elseif t.next ~= NEXT.stay then
    r.place = PLACE_AFTER[t.next]
    count(r.queue, r.place, 1)
  end
  if t.next ~= NEXT.stay then
    local n = #fields
    fields[n + 1], fields[n + 2] = 'place', r.place
  end
  if r.entry and t.next == NEXT.ready then add(fields, 'entry', r.entry) end
  if t.next == NEXT.later then
    r.due = decimal(now + tonumber(t.delay))
    add(fields, 'due', r.due)
    call('ZADD', K.retry, r.due, t.id)
    rings.ready = true
  end
  call('HSET', t.record, unpack(fields))
  if not drops_first(t) then drop_bodies(t) end
  if t.next == NEXT.settled then settle(t, r) end
  if t.next ~= NEXT.stay and t.next ~= NEXT.ready then release_line(r) end
  if t.next == NEXT.gone then bury(r, t.request, tonumber(t.settled_at), tombstone_seconds) end
end

local function as_known(t)
  local found = try('HMGET', t.record, 'version', 'leaseId')
  if found.err or found[1] ~= t.expects or found[2] ~= t.lease then return nil end
  local r = t.was
  r.id, r.version, r.leaseId, r.place = t.id, t.expects, t.lease, PLACE.leased
  r.queue = r.queue or 'default'
  return r
end

-- Logs the events. A holder sends what only the record told; of a straight run, the record tells all.
local function log_it(t, r)
  if not t.elements then
    written = written + 1
    return true
  end
  local elements = unlogged_of(r)
  for _, element in ipairs(t.elements) do elements[#elements + 1] = element end
  if r.ran then add(t.fields, 'ran', '') end
  return log_elements(t.id, unpack(elements))
end

local function apply(t)
  t.record = K.task(t.id)
  local known = t.was and as_known(t)
  local r, wrong = known, nil
  if not r then r, wrong = read(t.id) end
  if not r then return refuse(t, nil, wrong) end
  local refused = refuse(t, r)
  if refused then return refused end
  if not log_it(t, r) then
    return {'unreadable', 'its events are of another type'}
  end
  if drops_first(t) then drop_bodies(t) end
  write_bodies(t)
  index(t, r)
  put(t, r)
  if t.follows then follow_ups.accept_all(t.follows) end
  if t.next == NEXT.gone then return {NEXT.gone} end
  if t.next == NEXT.settled then return NEXT.settled end
  if t.next ~= NEXT.stay then return {'applied', r.place, r.due or '', r.order or ''} end
  if known then return {'stayed', false, call('ZSCORE', K.leases, t.id)} end
  return {'stayed', shown(t.id)}
end

-- ARGV 4 and what follows are one transition each. Answers with an answer for each.
local function apply_all()
  local answers = {}
  get_through()
  for i = 4, #ARGV do
    local done, answer = pcall(apply, cmsgpack.unpack(ARGV[i]))
    if not done then
      note_denied(answer)
      answer = {'unreadable', type(answer) == 'table' and answer.err or tostring(answer)}
    end
    answers[#answers + 1] = answer
  end
  if follow_ups then follow_ups.end_submits() end
  finish()
  count_error_groups()
  return answered(answers)
end
