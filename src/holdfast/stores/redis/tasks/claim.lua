-- claim: Hands out ready tasks, each under a lease.
-- ARGV 2 worker, 3 request, 4 how many of this request's tasks it has got already, 5 limit, 6
-- lease seconds, 7 a secret, 8 the lock's seconds, 9 the statuses of START, 10 whether first runs
-- take the straight path (empty: no), 11… queues in order of preference. Answers what is
-- `handed_out` (each first run: id, payload, lease, order; each other: id, fields, changes, lease's
-- end, whether newer work ran, bodies), who is `unreadable`, how many the request has got (`upto`)
-- and a repeat is to get (`repeated`), `lease_until`, the time (`wall`).
-- uses: first_runs iso_time lists switch_end server foreign_keys record time
--   active_task claim_state write_batch status_index tenant_lock transition_counts departure
--   record_changes
-- keys: back ckpt ckpt_meta data leases line lock payload stages stream switches task
-- constants: GROUP PLACE.leased PLACE.line PLACE.ready

-- Returns the bodies of a task; nil: one of them cannot be read.
local function bodies(id, has_run)
  local found = {try('GET', K.payload(id))}
  if has_run then
    add(found, try('GET', K.ckpt(id)), try('GET', K.data(id)), try('HGETALL', K.stages(id)),
      try('HGET', K.ckpt_meta(id), 'version'))
  end
  for _, body in ipairs(found) do
    if type(body) == 'table' and body.err then return nil end
  end
  return found
end

-- Leases a task. The id of the lease has the entry, the fence and the version that it made.
local function lease(r, version)
  fence = math.max(fence + 1, math.floor(now * 1000000))
  written = written + 1
  put_in(K.leases, r.id, lease_until)
  if r.tenantId then
    local lock = K.lock(r.tenantId)
    if not strangers[lock] then call('SET', lock, r.id, 'EX', lock_seconds) end
    fences[r.tenantId] = fence
  end
  count(r.queue, PLACE.ready, -1)
  count(r.queue, PLACE.leased, 1)
  count_lock(r, 1)
  return (r.entry or '') .. ':' .. secret .. ':' .. string.format('%x', fence) .. ':' .. version
end

-- Completes the short record of a task that has only waited; its payload has all else.
local function hand_out_first(r, key, payload)
  local before, after, id = r.status, start[r.status], r.id
  local lease_id = lease(r, '2')
  count_move(before, after, r, wall - (tonumber(r.statusSince) or wall))
  index_status(id, before, after)
  call('HSET', key, 'status', after, 'version', '2', 'updatedAt', iso(wall), 'statusSince', stamp,
    'place', PLACE.leased, 'leaseOwner', worker, 'leaseId', lease_id, 'taskId', id,
    'pauseRequested', 'false', 'lastCompletedStageIndex', '-1')
  local n = #handed_out
  handed_out[n + 1], handed_out[n + 2], handed_out[n + 3] = id, lease_id, '0'
  claimed[#claimed + 1] = {id, payload, lease_id, r.order}
end

local function hand_out(r, fields)
  local newer_ran, has_run = is_superseded(r) and '1' or '0', r.fence ~= nil
  local belongs = bodies(r.id, has_run)
  if not belongs then
    unreadable[#unreadable + 1] = r.id
    return
  end
  local changes = step(r, start)
  local lease_id = lease(r, r.version)
  add(changes, 'place', PLACE.leased, 'leaseOwner', worker, 'leaseId', lease_id)
  if r.progress then add(changes, 'progress', '') end  -- the last holder's
  if not has_run then
    add(changes, 'taskId', r.id, 'pauseRequested', r.pauseRequested or 'false',
      'lastCompletedStageIndex', r.lastCompletedStageIndex or '-1')
  end
  set(r, changes)
  add(handed_out, r.id, lease_id, newer_ran)
  claimed[#claimed + 1] = {r.id, fields, changes, lease_until, newer_ran, belongs}
end

-- Returns the task of the same tenant that runs: this one should not be here, and goes behind it.
local function busy_with(r)
  if not r.tenantId then return false end
  local holder = follow('GET', K.lock(r.tenantId))
  if not holder or holder == r.id then return false end
  return try('HGET', K.task(holder), 'place') == PLACE.leased and holder
end

-- The task of a held tenant stays first in its line, in no queue, until the hold is released.
local function is_held(r)
  local hold = any_switch_set and r.tenantId
    and call('HGET', K.switches, 'hold:tenant ' .. r.tenantId)
  return hold and (end_of(hold) or wall + 1) > wall
end

-- Takes a task as it was submitted: its payload has all that a first holder needs, and the record is
-- not read.
local function take_first_run(id, entry, queue, its_type)
  local key = K.task(id)
  local found = try('HMGET', key, 'version', 'place', 'entry', 'status', 'tenantId', 'statusSince',
    'order')
  local status = found[4]
  if found.err or found[1] ~= '1' or found[2] ~= PLACE.ready or found[3] ~= entry
    or (start[status] or status) == status or not tonumber(found[7]) then return false end
  local payload = try('GET', K.payload(id))
  if type(payload) ~= 'string' or string.byte(payload) == 10 then return false end
  local r = {id = id, queue = queue, entry = entry, status = status, statusSince = found[6],
    tenantId = found[5] ~= '' and found[5] or nil, order = found[7],
    type = its_type or call('HGET', key, 'type')}
  if busy_with(r) or is_held(r) then return false end
  hand_out_first(r, key, payload)
  return true
end

-- Takes a task; `its_type` is there if the entry has it.
local function take(id, entry, queue, its_type)
  if entry and take_first_run(id, entry, queue, its_type) then return true end
  local r, fields = read(id)
  if not r and fields then
    unreadable[#unreadable + 1] = id
  elseif not r or r.place ~= PLACE.ready or r.entry ~= entry then
    return false
  elseif not start[r.status] then
    unreadable[#unreadable + 1] = id
  elseif busy_with(r) then
    set_active(r.tenantId, busy_with(r))
    take_out(r)
    follow('ZADD', K.line(r.tenantId), r.order, id)
    count(r.queue, PLACE.line, 1)
    set(r, {'place', PLACE.line, 'entry', ''})
  elseif is_held(r) then
    forget_entry(r)
    set(r, {'entry', ''})
  else
    hand_out(r, fields)
  end
  return true
end

local function drop(stream, entry)
  call('XACK', stream, GROUP, entry)
  call('XDEL', stream, entry)
end

-- Lost tasks come first. Their entries are still pending, with whoever had them.
local function take_back(queue, stream)
  for _, id in ipairs(follow('ZRANGE', K.back(queue), 0, limit - #claimed - 1) or {}) do
    call('ZREM', K.back(queue), id)
    local entry = try('HGET', K.task(id), 'entry')
    if type(entry) == 'string' and entry ~= '' then
      try('XCLAIM', stream, GROUP, worker, 0, entry, 'JUSTID')
      if not take(id, entry, queue) then drop(stream, entry) end
    else
      take(id, nil, queue)
    end
  end
end

-- Takes the tasks of a batch, each in its turn.
local function take_batch(batch, stream)
  for i, found in ipairs(batch.entries) do
    local values = found[2]
    if batch.facts[i] then
      hand_out_usual(batch, i)
    elseif not values or values[1] ~= 'taskId'
      or not take(values[2], found[1], batch.queue, values[4]) then
      drop(stream, found[1])  -- of nobody, or of a task that is elsewhere by now
    end
  end
end

-- Returns the next batch of a queue; nil: it has none, or no more can be read.
local function next_batch(queue, stream, asked)
  local got = try('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', asked, 'STREAMS', stream, '>')
  if not got then return nil end
  if not got.err then
    local entries = got[1][2]
    return goes_straight and look_at(queue, entries)
      or {queue = queue, entries = entries, facts = {}}
  end
  if not string.find(got.err, 'NOGROUP') then
    if #claimed > 0 then return nil end  -- what was handed out must be answered
    error(got.err)
  end
  call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
  return {queue = queue, entries = {}, facts = {}, is_begun = true}
end

local function take_new(queue, stream)
  for _ = 1, 10 do
    local asked = limit - #claimed
    if asked <= 0 then return end
    local batch = left_over or next_batch(queue, stream, asked)
    left_over = nil
    if not batch then return end
    take_batch(batch, stream)
    if #batch.entries < asked and not batch.is_begun then return end
  end
end

-- What this request was given before: an answer may have been lost. All of it, even if there is
-- less room by now: what its holder does not know of, nobody would run until its lease is over.
local REPEATED_MAX = 50  -- at once
if is_repeat then
  for word in string.gmatch(string.sub(last_claim, #request + 2), '[^\n]+') do
    handed_out[#handed_out + 1] = word
  end
end
local before = is_repeat and #handed_out / 3 or 0
if before > got then
  local upto = math.min(before, got + REPEATED_MAX)
  for i = got * 3 + 1, upto * 3, 3 do
    local r, fields = read(handed_out[i])
    local belongs = r and r.place == PLACE.leased and r.leaseId == handed_out[i + 1] and bodies(r.id, true)
    if belongs then
      local ends = call('ZSCORE', K.leases, r.id) or lease_until
      claimed[#claimed + 1] = {r.id, fields, {}, ends, handed_out[i + 2], belongs}
    end
  end
  return {'answer', {'handed_out', claimed, 'unreadable', {}, 'upto', upto, 'lease_until', lease_until,
    'wall', stamp, 'repeated', before}}
end

local function take_all()
  if #queues == 0 then queues = open_queues() end
  for at = next_queue, #queues do
    local queue = queues[at]
    local stream = K.stream(queue)
    if left_over then  -- nothing was given back, and the stream is there
      take_new(queue, stream)
    else
      if #claimed < limit then take_back(queue, stream) end
      if #claimed < limit and call('EXISTS', stream) == 1 then take_new(queue, stream) end
    end
  end
end

local done, wrong = pcall(take_all)
end_first_runs()
return answer_claim(done, wrong)
