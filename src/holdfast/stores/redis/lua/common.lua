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

local function iso(seconds)
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
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day,
    math.floor(s / 3600), math.floor(s / 60) % 60, s % 60, us % 1000000)
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

-- Counts are gathered and written once, by finish().
local counts, moves, dwell, queues = {}, {}, {}, {}
local rings = {}
local written, writes = 0, 0  -- versions of records: by this script, and ever

local function count(queue, place, by)
  local field = queue .. ' ' .. place
  counts[field] = (counts[field] or 0) + by
  if by > 0 then queues[queue] = true end
end

local function count_move(before, after, seconds)
  local field = before .. ' ' .. after
  moves[field] = (moves[field] or 0) + 1
  dwell[field] = (dwell[field] or 0) + math.max(0, seconds)
end

local function finish()
  if written > 0 then writes = call('HINCRBY', K.meta, 'writes', written) end
  for field, by in pairs(counts) do
    if by ~= 0 then call('HINCRBY', K.counts, field, by) end
  end
  for field, by in pairs(moves) do
    call('HINCRBY', K.moves, field, by)
    call('HINCRBY', K.moves, field .. ' us', whole(dwell[field] * 1000000))
  end
  for queue in pairs(queues) do call('SADD', K.queues, queue) end
  local bell = {}
  for topic in pairs(rings) do
    bell[#bell + 1] = topic
    bell[#bell + 1] = '1'
  end
  if #bell > 0 then call('XADD', K.bell, 'MAXLEN', RINGS, '*', unpack(bell)) end
end

-- Records.

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
  return r, fields
end

-- What the sweep needs when the record itself has run out of time.
local function grave(r)
  return table.concat({r.id, r.tenantId or '', r.planId or '', r.status, r.queue, r.error or '',
    string.sub(r.createdAt or '', 1, 10), r.key or ''}, '|')
end

-- The first write of every change. False: the key is of another type, and nothing was written.
local function log_event(id, version, request, body)
  if is_strange(try('RPUSH', K.events(id), version .. '\n' .. request .. '\n' .. body)) then
    return false
  end
  written = written + 1
  return true
end

-- The request that made a version: each version has one element, the newest is the last.
local function request_of(r, version)
  local behind = tonumber(r.version) - tonumber(version)
  if behind < 0 then return nil end
  local found = call('LINDEX', K.events(r.id), whole(-behind - 1))
  if not found then return nil end
  local of, request = string.match(found, '^(%d+)\n([^\n]*)\n')
  return of == whole(tonumber(version)) and request or nil
end

local function index_status(id, before, after)
  if before ~= after then
    if before then follow('ZREM', K.by_status(before), id) end
    if after then follow('ZADD', K.by_status(after), 0, id) end
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

-- To its queue, or behind its tenant's active task: sets r.place and r.entry, writes no record.
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
      set_active(r.tenantId, r.id)
    end
  end
  r.place = 'ready'
  r.entry = follow('XADD', K.stream(r.queue), '*', 'taskId', r.id, 'type', r.type or '')
  count(r.queue, 'ready', 1)
  rings.ready = true
end

local function forget_entry(r)
  if r.entry then
    local stream = K.stream(r.queue)
    try('XACK', stream, GROUP, r.entry)
    try('XDEL', stream, r.entry)
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
    call('ZREM', K.leases, r.id)
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
    call('ZREM', K.settled, grave(r))
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
    local r = read(popped[1])
    if r and r.place == 'line' then
      count(r.queue, 'line', -1)
      return r
    end
  end
end

-- The record of a place is written before this is called: the line reads it.
local function advance(tenant, active)
  if line_is_open(active) then
    local head = next_in_line(tenant)
    if head then
      set_active(tenant, nil)
      enter(head)
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

-- One of the store's own moves: its event, its status, and the fields that follow from them.
local function move(r, to, event, facts)
  local status = to[r.status]
  local version = whole(tonumber(r.version) + 1)
  local body = table.concat({event, decimal(wall), unpack(facts)}, '\n')
  if not log_event(r.id, version, '', body) then return nil end
  local changes = {'status', status, 'version', version, 'updatedAt', iso(wall)}
  if status ~= r.status then
    changes[7], changes[8] = 'statusSince', decimal(wall)
    count_move(r.status, status, wall - (tonumber(r.statusSince) or wall))
    index_status(r.id, r.status, status)
  end
  r.status, r.version = status, version
  return changes
end

local function set(r, changes) call('HSET', K.task(r.id), unpack(changes)) end

local function add(changes, ...)
  local more = {...}
  for i = 1, #more do changes[#changes + 1] = more[i] end
end

-- A record as it is, for those whose write was refused: fields, and the end of its lease.
local function shown(id)
  local fields = try('HGETALL', K.task(id))
  if fields.err or #fields == 0 then return false end
  return {fields, call('ZSCORE', K.leases, id)}
end

-- Optional fields are listed in the record, so that the next write can take them away.
local function with_optional(r, name)
  local listed = ' ' .. (r.optional or '') .. ' '
  if string.find(listed, ' ' .. name .. ' ', 1, true) then return r.optional end
  return (r.optional and r.optional .. ' ' or '') .. name
end

local function unindex(id, tenant, plan, status, fingerprint, day)
  follow('ZREM', K.by_status(status), id)
  follow('SREM', K.by_day(day), id)
  if plan ~= '' then follow('ZREM', K.by_plan(plan), id) end
  if fingerprint ~= '' then follow('ZREM', K.by_error(fingerprint), id) end
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
  call('ZREM', K.settled, grave(r))
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
  call('ZREM', K.leases, r.id)
  if counted then
    add(changes, 'crashes', crashes)
    r.optional = with_optional(r, 'crashes')
  end
  r.optional = with_optional(r, 'interrupted')
  add(changes, 'interrupted', 'true', 'optional', r.optional, 'place', 'ready')
  call('HDEL', K.task(r.id), 'leaseId', 'leaseOwner', 'progress')
  set(r, changes)
  follow('ZADD', K.back(r.queue), whole(-call('HINCRBY', K.meta, 'lost', 1)), r.id)
  count(r.queue, 'leased', -1)
  count(r.queue, 'ready', 1)
  rings.ready = true
  return true
end
