-- Where tasks are: lines, queues, leases, rest, graves. Over common.lua.

-- Lines. Only the head of a tenant's line is ever in a queue.

local function rests(place) return place == 'later' or place == 'parked' end

local function line_is_open(active)
  if not active then return true end
  local a = try('HMGET', K.task(active), 'place', 'hold')
  return a.err or not a[1] or (rests(a[1]) and a[2] ~= 'true')
end

local function active_of(tenant) return follow('GET', K.active(tenant)) end

local function set_active(tenant, id)
  local name = K.active(tenant)
  if strangers[name] then return end
  if id then call('SET', name, id) else call('DEL', name) end
end

-- As its tenant's active task: sets r.place and r.entry, writes no record.
local function to_queue(r)
  if r.tenantId then set_active(r.tenantId, r.id) end
  r.place = 'ready'
  r.entry = follow('XADD', K.stream(r.queue), '*', 'taskId', r.id, 'type', r.type or '')
  count(r.queue, 'ready', 1)
  rings.ready = true
end

-- Whether it would have to go behind its tenant's active task.
local function would_wait(r)
  if not r.tenantId then return false end
  local active = active_of(r.tenantId)
  return active ~= r.id and not line_is_open(active)
end

-- To its queue, or behind its tenant's active task.
local function enter(r)
  if would_wait(r) then
    follow('ZADD', K.line(r.tenantId), r.order, r.id)
    r.place, r.entry = 'line', nil
    count(r.queue, 'line', 1)
    return
  end
  to_queue(r)
end

local function forget_entry(r)
  if r.entry then
    local of = within(entries, K.stream(r.queue))
    of[#of + 1] = r.entry
    r.entry = nil
  end
end

local function unlock(r)
  if r.tenantId and follow('GET', K.lock(r.tenantId)) == r.id then
    call('DEL', K.lock(r.tenantId))
  end
end

-- A tenant's lock is held while a task of it is leased.
local function count_lock(r, by)
  if r.tenantId then count(r.queue, 'locks', by) end
end

-- What its stages kept must not go with the checkpoint's time to live: the task may be rolled back.
local function restore_checkpoint(id)
  if call('EXISTS', K.ckpt(id)) == 1 then
    call('PERSIST', K.ckpt(id))
    call('PERSIST', K.ckpt_meta(id))
    call('DEL', K.kept(id))
  elseif call('EXISTS', K.kept(id)) == 1 then
    call('RENAME', K.kept(id), K.ckpt(id))
  end
end

-- Out of the place that it is in, with everything that says so but the record.
local function take_out(r)
  local place = r.place
  count(r.queue, place, -1)
  if place == 'leased' then
    count_lock(r, -1)
    take_from(K.leases, r.id)
    forget_entry(r)
    unlock(r)
  elseif place == 'ready' then
    forget_entry(r)
    follow('ZREM', K.back(r.queue), r.id)
  elseif place == 'line' then
    if r.tenantId then follow('ZREM', K.line(r.tenantId), r.id) end
  elseif place == 'later' then
    call('ZREM', K.retry, r.id)
  elseif place == 'settled' then
    take_from(K.settled, grave(r))
    call('ZREM', K.saved, r.id)
    call('PERSIST', K.task(r.id))
    restore_checkpoint(r.id)
    if r.key then call('PERSIST', K.key_of(r.tenantId or '', r.key)) end
  end
  if r.tenantId and rests(place) and not r.holds then
    follow('ZREM', K.resting(r.tenantId), r.id)
  end
end

-- The head of the line, and all that is unreadable before it, which is left to the doctor.
local function next_in_line(tenant)
  for _ = 1, 100 do
    local popped = follow('ZPOPMIN', K.line(tenant))
    if not popped or #popped == 0 then return nil end
    local id = popped[1]
    local found = try('HMGET', K.task(id), 'place', 'queue', 'type', 'version', 'status', 'order')
    if found[1] == 'line' and tonumber(found[4]) and found[5] and tonumber(found[6]) then
      local queue = found[2] or 'default'
      count(queue, 'line', -1)
      return {id = id, tenantId = tenant, queue = queue, type = found[3], order = found[6]}
    end
  end
end

-- The record of a place is written before this is called: the line reads it.
local function advance(tenant, active)
  if line_is_open(active) then
    local head = next_in_line(tenant)
    if head then
      to_queue(head)
      call('HSET', K.task(head.id), 'place', head.place, 'entry', head.entry or '')
      return
    end
  end
  if not active then
    local newest = follow('ZREVRANGE', K.resting(tenant), 0, 0)
    set_active(tenant, newest and newest[1])
  end
end

-- It has stopped being runnable; its tenant's next may be let through.
local function rest(r)
  rings.rested = true
  if not r.tenantId then return end
  if rests(r.place) and not r.holds then
    follow('ZADD', K.resting(r.tenantId), r.order, r.id)
  end
  local active = active_of(r.tenantId)
  if active == r.id then advance(r.tenantId, r.place ~= 'settled' and active) end
end

local function moved_on(r)
  local fence = tonumber(r.fence)
  if not r.tenantId or not fence or fence == 0 then return false end
  return tonumber(call('HGET', K.fences, r.tenantId) or '0') > fence
end

local function add(list, ...)
  local more, n = {...}, #list
  for i = 1, #more do list[n + i] = more[i] end
end

-- Suspended tasks by the fingerprint of their failure (nil or false: none), and how many of each.
local causes = {}

local function index_cause(id, before, after)
  if before == after then return end
  if before then
    take_from(K.by_cause(before), id)
    causes[before] = true
  end
  if after then
    put_in(K.by_cause(after), id)
    causes[after] = true
  end
end

-- After finish(), which writes the members. Counted anew, so that it cannot go astray.
local function count_causes()
  for cause in pairs(causes) do
    local tasks = follow('ZCARD', K.by_cause(cause)) or 0
    if tasks > 0 then call('ZADD', K.errors, tasks, cause) else call('ZREM', K.errors, cause) end
  end
end

-- The status after one of the store's own moves, and the fields that follow from it.
local function step(r, to)
  local status = to[r.status]
  local version = whole(tonumber(r.version) + 1)
  local changes = {'status', status, 'version', version, 'updatedAt', iso(wall)}
  if status ~= r.status then
    changes[7], changes[8] = 'statusSince', decimal(wall)
    count_move(r.status, status, r, wall - (tonumber(r.statusSince) or wall))
    index_status(r.id, r.status, status)
  end
  r.status, r.version = status, version
  return changes
end

-- The same with its event. Nil: the event cannot be written, so nothing was.
local function move(r, to, event, facts)
  local version = whole(tonumber(r.version) + 1)
  local body = table.concat({event, decimal(wall), unpack(facts)}, '\n')
  if not log_event(r, version, '', body) then return nil end
  return step(r, to)
end

local function set(r, changes) call('HSET', K.task(r.id), unpack(changes)) end

-- A record as it is, for those whose write was refused: fields, and the end of its lease.
local function shown(id)
  local fields = try('HGETALL', K.task(id))
  if fields.err or #fields == 0 then return false end
  return {fields, call('ZSCORE', K.leases, id)}
end

local function unindex(id, tenant, plan, status, fingerprint, day)
  take_from(K.by_status(status), id)
  follow('SREM', K.by_day(day), id)
  if plan ~= '' then take_from(K.by_plan(plan), id) end
  if fingerprint ~= '' then take_from(K.by_error(fingerprint), id) end
  if tenant ~= '' then
    follow('ZREM', K.by_tenant(tenant), id)
    if call('EXISTS', K.by_tenant(tenant)) == 0 then call('HDEL', K.fences, tenant) end
  end
end

local function free_key(tenant, key, id)
  local name = K.key_of(tenant, key)
  local owner = follow('GET', name)
  if owner and string.sub(owner, 1, #id + 1) == id .. ' ' then call('DEL', name) end
end

local function delete_bodies(id)
  call('DEL', K.payload(id), K.result(id), K.data(id), K.stages(id), K.events(id), K.ckpt(id),
    K.ckpt_meta(id), K.kept(id), K.damaged(id), K.damaged(id .. ':events'))
end

-- A settled record and all that belongs to it; while its key still answers, a tombstone stays.
local function bury(r, request, settled_at, tombstone_seconds)
  local id, till = r.id, settled_at + tombstone_seconds
  count(r.queue, 'settled', -1)
  take_from(K.settled, grave(r))
  call('ZREM', K.saved, id)
  unindex(id, r.tenantId or '', r.planId or '', r.status, r.error or '',
    string.sub(r.createdAt or '', 1, 10))
  if till > wall then
    local name = K.tombstone(id)
    call('RENAME', K.task(id), name)
    call('HSET', name, 'request', request, 'until', decimal(till))
    local result = call('GET', K.result(id))
    if result then call('HSET', name, 'result', result) end
    call('EXPIRE', name, whole(math.ceil(till - wall)))
    call('ZADD', K.tombstones, decimal(till), id)
    if r.key then
      call('EXPIRE', K.key_of(r.tenantId or '', r.key), whole(math.ceil(till - wall)))
    end
  else
    call('DEL', K.task(id))
    if r.key then free_key(r.tenantId or '', r.key, id) end
  end
  delete_bodies(id)
end

-- Records of these ids in the order of their submits, as every store moves those of one moment;
-- with scores, in the order of these first. Each is its id, its record, and what is wrong with it.
local function in_order(ids, scored)
  local found = {}
  for i = 1, #ids, scored and 2 or 1 do
    local r, wrong = read(ids[i])
    local order = r and tonumber(r.order) or 0
    local score = scored and tonumber(ids[i + 1]) or 0
    found[#found + 1] = {id = ids[i], record = r, wrong = not r and wrong, score = score,
      order = order}
  end
  table.sort(found, function(a, b)
    return a.score < b.score or a.score == b.score and a.order < b.order
  end)
  return found
end

-- Whether the lease that was lost is a crash: its stage had begun, and from so many crashes on, alone.
local function is_crash(r, crashes, alone_from)
  if not alone_from or not r.progress or r.progress == '' then return false end
  local read_it, noted = pcall(cjson.decode, r.progress)
  if not read_it or type(noted) ~= 'table' then return false end
  local position = (r.lastCompletedStageIndex or '-1') .. '/' .. (r.nextUndo or '-1')
  return noted.begun == position and (crashes < alone_from or noted.alone == true)
end

-- Its lease is over: to the head of its queue. Its entry stays pending with the one who is gone.
local function lose_lease(r, to, event, alone_from)
  if not to[r.status] then return false end
  local crashes = tonumber(r.crashes or '0') or 0
  local counted = is_crash(r, crashes, alone_from)
  local facts = {r.leaseOwner or '', r.fence or '0', counted and '1' or '0'}
  local changes = move(r, to, event, facts)
  if not changes then return false end
  unlock(r)
  take_from(K.leases, r.id)
  if counted then add(changes, 'crashes', whole(crashes + 1)) end
  add(changes, 'lapses', whole((tonumber(r.lapses or '0') or 0) + 1))
  add(changes, 'interrupted', 'true', 'place', 'ready', 'ranBy', r.leaseOwner or '')
  set(r, changes)
  follow('ZADD', K.back(r.queue), whole(-call('HINCRBY', K.meta, 'lost', 1)), r.id)
  count(r.queue, 'leased', -1)
  count(r.queue, 'ready', 1)
  count_lock(r, -1)
  rings.ready = true
  return true
end
