-- What the verbs share: the time, records, places, lines and counts. Keys come from keys.py as K.
-- Statuses are data here: they come with the arguments and with the records.

local call, try = redis.call, redis.pcall

-- Two keys, one of which never exists: while a Cluster moves the slot this is refused on both sides,
-- before anything is written where half of the keys are missing.
call('EXISTS', K.meta, K.meta .. ':none')

-- The time: the server's, or the one given by a test as "now wall". Leases and due times are judged
-- by `now`, everything else by `wall`.
--
-- A server that was frozen, or a way to it that was, carries out late what was sent before: who sent
-- it has given up by then. So leases run from `asked`, the latest time at which this should have
-- been run ("by ..."): what comes too late gives nobody a lease that nobody keeps.
local now, wall, asked
if ARGV[1] == '' or string.sub(ARGV[1], 1, 3) == 'by ' then
  local time = call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
  wall = now
  asked = math.min(now, tonumber(string.sub(ARGV[1], 4)) or now)
else
  local a, b = string.match(ARGV[1], '^(%S+) (%S+)$')
  now, wall = tonumber(a), tonumber(b)
  asked = now
end

local function decimal(number) return string.format('%.6f', number) end
local function whole(number) return string.format('%.0f', number) end

local isos = {}

local function iso(seconds)
  if isos[seconds] then return isos[seconds] end
  local us = math.floor(seconds * 1000000 + 0.5)
  local days = math.floor(us / 86400000000)
  us = us - days * 86400000000
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor(
    (doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local s = math.floor(us / 1000000)
  isos[seconds] = string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day,
    math.floor(s / 3600), math.floor(s / 60) % 60, s % 60, us % 1000000)
  return isos[seconds]
end

-- With the memory full, a script may write if its first write takes none. What finishes or keeps
-- work must get through, or nothing would ever be freed; submits must not.
local function get_through() call('DEL', K.meta .. ':none') end

-- A key whose name carries a name may be of another program. What follows from the records is then
-- left out, told (see told()), and for the doctor to mend: the task itself must not suffer.
local strangers = {}

-- Whether the reply is that the key is of another type. Any other error is raised.
local function is_strange(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return true end
  error(reply.err)
end

local function follow(command, key, ...)
  local reply = try(command, key, ...)
  if not is_strange(reply) then return reply or nil end
  strangers[key] = true
  return nil
end

local function told()
  local names = {}
  for name in pairs(strangers) do names[#names + 1] = name end
  return names
end

-- What follows from many tasks is gathered and written once, by finish(): counts, members of sorted
-- sets (the last word about one is what counts), and entries that leave their streams.
local counts, moves, members, entries = {}, {}, {}, {}
local rings = {}
local written, writes = 0, 0  -- versions of records: by this script, and ever

local function within(table, name)
  local of = table[name]
  if not of then
    of = {}
    table[name] = of
  end
  return of
end

local function count(queue, place, by)
  local of = within(counts, queue)
  of[place] = (of[place] or 0) + by
end

local function count_move(before, after, seconds)
  local of = within(moves, before)
  local so_far = within(of, after)
  so_far.times = (so_far.times or 0) + 1
  so_far.seconds = (so_far.seconds or 0) + math.max(0, seconds)
end

local function put_in(key, id, score) within(members, key)[id] = score or 0 end
local function take_from(key, id) within(members, key)[id] = false end

local function write_members(key, of)
  local gone, come = {}, {}
  for id, score in pairs(of) do
    if score then
      come[#come + 1] = score
      come[#come + 1] = id
    else
      gone[#gone + 1] = id
    end
  end
  if #gone > 0 then follow('ZREM', key, unpack(gone)) end
  if #come > 0 then follow('ZADD', key, unpack(come)) end
end

local function finish()
  for key, of in pairs(members) do write_members(key, of) end
  for stream, of in pairs(entries) do
    try('XACK', stream, GROUP, unpack(of))
    try('XDEL', stream, unpack(of))
  end
  if written > 0 then writes = call('HINCRBY', K.meta, 'writes', written) end
  for queue, places in pairs(counts) do
    for place, by in pairs(places) do
      if by ~= 0 then call('HINCRBY', K.counts, queue .. ' ' .. place, by) end
    end
    call('SADD', K.queues, queue)
  end
  for before, of in pairs(moves) do
    for after, so_far in pairs(of) do
      local field = before .. ' ' .. after
      call('HINCRBY', K.moves, field, so_far.times)
      call('HINCRBY', K.moves, field .. ' us', whole(so_far.seconds * 1000000))
    end
  end
  local bell = {}
  for topic in pairs(rings) do
    bell[#bell + 1] = topic
    bell[#bell + 1] = '1'
  end
  if #bell > 0 then call('XADD', K.bell, 'MAXLEN', RINGS, '*', unpack(bell)) end
end

-- Records.

-- The last lease says which fence it had, and which version it made. It is in force while the place
-- is 'leased'. As long as the record has that version, only the lease says that it was started.
local function know_lease(r)
  local fence, version = string.match(r.leaseId or '', ':(%x+):(%d+)$')
  if fence then
    r.fence = whole(tonumber(fence, 16))
    r.unsaid = version == r.version
  end
end

local function started(r, version, at)
  return table.concat({version, '', STARTED, at, r.leaseOwner or '', r.fence}, '\n')
end

-- What only the record says of its events, as elements of their list: that it was started, or that it
-- ran straight through (`ran`: when it was started, and when its only stage was).
local function unsaid_of(r)
  if r.unsaid then return {started(r, r.version, r.updatedAt or '')} end
  if not r.ran then return {} end
  local start, began = string.match(r.ran, '^(%S+) (%S+)$')
  local facts = {'3', r.leaseId .. ':2', 'ran', began or '', r.statusSince, r.stage0 or ''}
  return {started(r, '2', start or ''), table.concat(facts, '\n')}
end

-- A record and its fields as they are, or nil and what is wrong: nil (there is none) or a text.
local function read(id)
  local fields = try('HGETALL', K.task(id))
  if fields.err then return nil, fields.err end
  if #fields == 0 then return nil end
  local r = {}
  for i = 1, #fields, 2 do
    if fields[i + 1] ~= '' then r[fields[i]] = fields[i + 1] end
  end
  if not (tonumber(r.version) and r.place and r.status and tonumber(r.order)) then
    return nil, 'incomplete'
  end
  r.id, r.queue, r.holds = id, r.queue or 'default', r.hold == 'true'
  r.keepSeconds = r.keepSeconds or KEEP
  if r.place == 'settled' then r.settledAt = r.settledAt or r.statusSince end
  know_lease(r)
  return r, fields
end

-- What the sweep needs when the record itself has run out of time.
local function grave(r)
  return table.concat({r.id, r.tenantId or '', r.planId or '', r.status, r.queue, r.error or '',
    string.sub(r.createdAt or '', 1, 10), r.key or ''}, '|')
end

-- The first write of every change. False: the key is of another type, and nothing was written.
-- That a task was started is told by its lease until something else happens.
local function log_elements(id, ...)
  if is_strange(try('RPUSH', K.events(id), ...)) then return false end
  written = written + 1
  return true
end

local function log_event(r, version, request, body)
  local elements = unsaid_of(r)
  elements[#elements + 1] = version .. '\n' .. request .. '\n' .. body
  return log_elements(r.id, unpack(elements))
end

-- The request that made a version: each version has one element, the newest is the last.
local function request_of(r, version)
  local behind = tonumber(r.version) - tonumber(version)
  if r.unsaid then behind = behind - 1 end
  if r.ran then return behind == 0 and r.leaseId .. ':2' or nil end
  if behind < 0 then return nil end
  local found = call('LINDEX', K.events(r.id), whole(-behind - 1))
  if not found then return nil end
  local of, request = string.match(found, '^(%d+)\n([^\n]*)\n')
  return of == whole(tonumber(version)) and request or nil
end

local status_keys = {}

local function with_status(status)
  local key = status_keys[status]
  if not key then
    key = K.by_status(status)
    status_keys[status] = key
  end
  return key
end

local function index_status(id, before, after)
  if before ~= after then
    if before then take_from(with_status(before), id) end
    if after then put_in(with_status(after), id) end
  end
end

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

-- To its queue, or behind its tenant's active task.
local function enter(r)
  if r.tenantId then
    local active = active_of(r.tenantId)
    if active ~= r.id then
      if not line_is_open(active) then
        follow('ZADD', K.line(r.tenantId), r.order, r.id)
        r.place, r.entry = 'line', nil
        count(r.queue, 'line', 1)
        return
      end
    end
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

-- The status after one of the store's own moves, and the fields that follow from it.
local function step(r, to)
  local status = to[r.status]
  local version = whole(tonumber(r.version) + 1)
  local changes = {'status', status, 'version', version, 'updatedAt', iso(wall)}
  if status ~= r.status then
    changes[7], changes[8] = 'statusSince', decimal(wall)
    count_move(r.status, status, wall - (tonumber(r.statusSince) or wall))
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

-- Its lease is over: to the head of its queue. Its entry stays pending with the one who is gone.
local function lose_lease(r, to, event, counted)
  if not to[r.status] then return false end
  local crashes = whole((tonumber(r.crashes or '0') or 0) + 1)
  local facts = {r.leaseOwner or '', r.fence or '0', counted and '1' or '0'}
  local changes = move(r, to, event, facts)
  if not changes then return false end
  unlock(r)
  take_from(K.leases, r.id)
  if counted then add(changes, 'crashes', crashes) end
  add(changes, 'interrupted', 'true', 'place', 'ready')
  set(r, changes)
  follow('ZADD', K.back(r.queue), whole(-call('HINCRBY', K.meta, 'lost', 1)), r.id)
  count(r.queue, 'leased', -1)
  count(r.queue, 'ready', 1)
  rings.ready = true
  return true
end
