-- examine: Compares the records of tasks with queues, lines, leases and indexes.
-- ARGV 2 "1": repair, 3 the statuses of LOSE, 4 its event, 5 the lock's seconds, 6… ids of tasks.
-- Answers for each the `type` of its key, the `fields` of its record, the end of its lease
-- (`lease_until`), what is kept beside the record (`bodies`), `complaints` (each the `invariant`,
-- a `message`, and whether it was `mended`), and whether it `runs`. This script looks only for
-- what is missing; examine_members.lua finds what is too much.
-- uses: grave numbers server record time delivery tenant_place write_batch queue_entry departure
--   record_changes lost_lease
-- keys: active back by_cause by_day by_error by_plan by_status by_tenant ckpt_meta events fences
--   key_of leases line lock meta payload resting retry settled stages stream suspended
--   switches task
-- constants: GROUP PLACE.held PLACE.later PLACE.leased PLACE.line PLACE.parked PLACE.ready
--   PLACE.settled RESTING

local fix, lose, event = ARGV[2] == '1', cmsgpack.unpack(ARGV[3]), ARGV[4]
local lock_seconds = ARGV[5]
local complaints, passed_over = {}, {}

local function complain(invariant, message, cure, ...)
  local mended = fix and cure ~= nil and cure(...) ~= false
  complaints[#complaints + 1] =
    {'invariant', invariant, 'message', 'the task ' .. message, 'mended', mended and 1 or 0}
end

local function member_of(key, member, score, name)
  local found = call('ZSCORE', key, member)
  if found and tonumber(found) == tonumber(score) then return end
  local message = (found and 'has another score in ' or 'is not in ') .. name
  complain('I11', message, call, 'ZADD', key, score, member)
end

local function indexes(r)
  local day = string.sub(r.createdAt or '', 1, 10)
  member_of(K.by_status(r.status), r.id, 0, 'the index of its status')
  if r.tenantId then member_of(K.by_tenant(r.tenantId), r.id, 0, 'the index of its tenant') end
  if r.planId then member_of(K.by_plan(r.planId), r.id, 0, 'the index of its plan') end
  if r.error then member_of(K.by_error(r.error), r.id, 0, 'the index of its error group') end
  if call('SISMEMBER', K.by_day(day), r.id) == 0 then
    complain('I11', 'is not in the index of its day', call, 'SADD', K.by_day(day), r.id)
  end
  if tonumber(r.suspendedAt) then
    member_of(K.suspended, r.id, r.suspendedAt, 'the list of suspended tasks')
    if r.error then
      member_of(K.by_cause(r.error), r.id, 0, 'the suspended tasks of its error group')
    end
  end
  if r.tenantId and RESTING[r.place] and not r.holds then
    member_of(K.resting(r.tenantId), r.id, r.order, 'the list of tasks that leave the line open')
  end
end

local function numbers(r)
  local function at_least(key, field, number, name)
    if tonumber(call('HGET', key, field) or '0') < number then
      local message = 'has a ' .. name .. ' that may be given out twice'
      complain('I11', message, call, 'HSET', key, field, whole(number))
    end
  end
  at_least(K.meta, 'order', tonumber(r.order), 'number')
  local fence = tonumber(r.fence or '0')
  if not fence or fence == 0 then return end
  at_least(K.meta, 'fence', fence, 'fence')
  if r.tenantId then at_least(K.fences, r.tenantId, fence, 'fence of its tenant') end
end

local function key(r)
  if not r.key then return end
  local name = K.key_of(r.tenantId or '', r.key)
  local owner = call('GET', name)
  if not owner then
    -- With the key the digest is gone, too: a repeated submit will be told of a conflict.
    complain('I10', 'does not own its key ' .. r.key .. ': nobody does', function()
      call('SET', name, r.id .. ' ')
      local left = call('PTTL', K.task(r.id))
      if left > 0 then call('PEXPIRE', name, left) end
    end)
  elseif string.sub(owner, 1, #r.id + 1) ~= r.id .. ' ' then
    complain('I10', 'does not own its key ' .. r.key .. ': ' .. owner .. ' does')
  elseif r.place ~= PLACE.settled and call('PTTL', name) >= 0 then
    complain('I10', 'owns its key, but the key will expire', call, 'PERSIST', name)
  end
end

-- Places that move it come last: what they change has been looked at by then.

local function lost(r) return lose_lease(r, lose, event, false) end

local function leased(r)
  if not call('ZSCORE', K.leases, r.id) then
    return complain('I1', 'is leased but not in the index of leases', lost, r)
  elseif not r.leaseId then
    return complain('I3', 'is leased without a lease', lost, r)
  end
  if r.entry and #try('XRANGE', K.stream(r.queue), r.entry, r.entry) == 0 then
    complain('I11', 'runs, but its entry in the queue is gone', set, r, {'entry', ''})
  end
  if not r.tenantId then return end
  local function runs_alone(message, name, ...)
    local other = call('GET', name)
    if other == r.id then return end
    complain('I2', 'runs, but ' .. (other or 'nobody') .. message .. r.tenantId, function(...)
      if other and place_for(r.tenantId, other) == PLACE.leased then return false end
      call('SET', name, r.id, ...)
    end, ...)
  end
  runs_alone(' is active for ', K.active(r.tenantId))
  runs_alone(' holds the lock of ', K.lock(r.tenantId), 'EX', lock_seconds)
end

local function later_than(entry, other)
  local a, b = string.match(entry, '^(%d+)%-(%d+)$')
  local c, d = string.match(other, '^(%d+)%-(%d+)$')
  a, b, c, d = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  return a > c or a == c and b > d
end

local function last_read(queue)
  if not passed_over[queue] then
    passed_over[queue] = last_delivered(K.stream(queue)) or '0-0'
  end
  return passed_over[queue]
end

local function queue_again(r)
  forget_entry(r)
  r.entry = call('XADD', K.stream(r.queue), '*', 'taskId', r.id, 'type', r.type or '')
  set(r, {'entry', r.entry})
  rings.ready = true
end

local function back_to_its_head(r)
  call('ZADD', K.back(r.queue), '-' .. r.order, r.id)
  rings.ready = true
end

local function in_its_queue(r)
  if call('ZSCORE', K.back(r.queue), r.id) then return end
  if not r.entry and r.tenantId
    and call('HGET', K.switches, 'hold:tenant ' .. r.tenantId) then return end
  local stream, entry = K.stream(r.queue), r.entry
  local found = entry and try('XRANGE', stream, entry, entry) or {}
  if #found == 0 or found[1][2][2] ~= r.id then
    return complain('I1', 'is ready but not in its queue', queue_again, r)
  end
  local pending = try('XPENDING', stream, GROUP, entry, entry, 1)
  if not pending.err and #pending > 0 then
    local message = 'is ready, but ' .. pending[1][2] .. ' has read it and holds no lease'
    return complain('I1', message, back_to_its_head, r)
  end
  if not later_than(entry, last_read(r.queue)) then
    complain('I1', 'is ready, but its queue has passed it over', queue_again, r)
  end
end

local function ready(r)
  in_its_queue(r)
  if not r.tenantId then return end
  local active = call('GET', K.active(r.tenantId))
  if active ~= r.id then
    local message = 'is ready, but ' .. (active or 'nobody') .. ' is active for ' .. r.tenantId
    complain('I2', message, function()
      take_out(r)
      enter(r)
      set(r, {'place', r.place, 'entry', r.entry or ''})
    end)
  end
end

local function line(r)
  if r.tenantId then return member_of(K.line(r.tenantId), r.id, r.order, "its tenant's line") end
  complain('I1', 'is in a line, but has no tenant', function()
    count(r.queue, PLACE.line, -1)
    enter(r)
    set(r, {'place', r.place, 'entry', r.entry})
  end)
end

local function later(r)
  if tonumber(r.due) then return member_of(K.retry, r.id, r.due, 'the list of due times') end
  complain('I1', 'waits for a time, but has no due time', function()
    set(r, {'due', decimal(now)})
    call('ZADD', K.retry, decimal(now), r.id)
  end)
end

local function settled(r)
  local ended, keep = tonumber(r.settledAt), tonumber(r.keepSeconds)
  if not ended or not keep then return complain('I1', 'is settled, but has no time of its end') end
  member_of(K.settled, grave(r), decimal(ended + keep), 'the list of settled tasks')
end

local function anywhere() end

local places = {[PLACE.leased] = leased, [PLACE.ready] = ready, [PLACE.line] = line,
  [PLACE.later] = later, [PLACE.settled] = settled, [PLACE.held] = anywhere,
  [PLACE.parked] = anywhere}

local function bodies(r)
  local last, kept = tonumber(r.lastCompletedStageIndex or '-1') or -1, r.stage0 and 1 or 0
  local found, facts = try('HGETALL', K.stages(r.id)), {}
  if found.err then found = {} end
  for i = 1, #found, 2 do
    if (tonumber(found[i]) or 0) <= last then
      kept = kept + 1
      facts[#facts + 1], facts[#facts + 2] = found[i], string.match(found[i + 1], '^[^\n]*')
    end
  end
  local at = try('HGET', K.ckpt_meta(r.id), 'lastCompletedStageIndex')
  return {'stages_kept', kept, 'checkpoint_at', type(at) == 'string' and at or '',
    'payload_type', call('TYPE', K.payload(r.id)).ok, 'events_type', call('TYPE', K.events(r.id)).ok,
    'stage_facts', facts}
end

local function examine(r)
  if not places[r.place] then return end  -- it is left to salvage
  if r.place ~= PLACE.settled and r.settledAt then
    complain('I1', 'is ' .. r.place .. ', but settled at ' .. r.settledAt)
  end
  if r.place ~= PLACE.settled and call('PTTL', K.task(r.id)) >= 0 then
    complain('I1', 'is not settled, but the server will delete it', call, 'PERSIST', K.task(r.id))
  end
  indexes(r)
  numbers(r)
  key(r)
  places[r.place](r)
end

local answers = {}
for i = 6, #ARGV do
  local id = ARGV[i]
  local kind = call('TYPE', K.task(id)).ok
  local fields = kind == 'hash' and call('HGETALL', K.task(id)) or {}
  local r = kind == 'hash' and read(id)
  complaints = {}
  local until_ = call('ZSCORE', K.leases, id) or ''
  if r then examine(r) end
  answers[#answers + 1] = {'type', kind, 'fields', fields, 'lease_until', until_,
    'bodies', r and bodies(r) or {}, 'complaints', complaints,
    'runs', until_ ~= '' and tonumber(until_) > now and 1 or 0}
end
finish()
return answers
