-- What the verbs share: the time, records, places, lines and counts. Keys come from keys.py as K.
-- Statuses are data here: they come with the arguments and with the records.

local call, try = redis.call, redis.pcall

-- Two keys, one of which never exists: while a Cluster (with its braces) moves the slot this is
-- refused on both sides, before anything is written where half of the keys are missing.
if string.sub(P, 1, 1) == '{' then call('EXISTS', K.meta, K.meta .. ':none') end

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

-- When a switch that was thrown is over; nil: when somebody sets it back.
local function end_of(thrown)
  local read, found = pcall(cjson.decode, thrown)
  return read and type(found) == 'table' and tonumber(found['until']) or nil
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

-- What went wrong, to be returned as the server would have told it.
local function failed(wrong)
  local text = type(wrong) == 'table' and wrong.err or tostring(wrong)
  if not string.find(text, '^[A-Z]+ ') then text = 'ERR Error running script: ' .. text end
  return redis.error_reply(text)
end

-- A script that goes on behind an error says so if a command was refused: then something is torn.
local function tell_denied(wrong)
  local text = type(wrong) == 'table' and wrong.err or tostring(wrong)
  if string.find(text, 'NOPERM', 1, true) or string.find(text, 'ACL failure', 1, true)
    or string.find(text, "can't run this command", 1, true) then strangers[DENIED] = true end
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

-- By queue and type, too: `r` is of any of the records that have both.
local function count_move(before, after, r, seconds)
  local so_far = within(moves, before .. ' ' .. after .. ' ' .. r.queue .. ' ' .. (r.type or ''))
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
    local acked, dropped = try('XACK', stream, GROUP, unpack(of)), try('XDEL', stream, unpack(of))
    if type(acked) == 'table' then tell_denied(acked) end
    if type(dropped) == 'table' then tell_denied(dropped) end
  end
  if written > 0 then writes = call('HINCRBY', K.meta, 'writes', written) end
  for queue, places in pairs(counts) do
    for place, by in pairs(places) do
      local first = by ~= 0 and call('HINCRBY', K.counts, queue .. ' ' .. place, by) == by
      if first then call('SADD', K.queues, queue) end
    end
  end
  for field, so_far in pairs(moves) do
    call('HINCRBY', K.moves, field, so_far.times)
    call('HINCRBY', K.moves, field .. ' us', whole(so_far.seconds * 1000000))
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
-- Of a settled record it is its last one, `ranUnder`: nobody is to take it for one in force.
local function know_lease(r)
  local fence, version = string.match(r.leaseId or r.ranUnder or '', ':(%x+):(%d+)$')
  if fence then
    r.fence = whole(tonumber(fence, 16))
    r.unsaid = r.leaseId and version == r.version
  end
end

local function started(r, version, at)
  local owner = r.leaseOwner or r.ranBy or ''
  return table.concat({version, '', STARTED, at, owner, r.fence or '0'}, '\n')
end

-- What only the record says of its events, as elements of their list: that it was started, or that it
-- ran straight through (`ran`: when it was started, and when its only stage was).
local function unsaid_of(r)
  if r.unsaid then return {started(r, r.version, r.updatedAt or '')} end
  if not r.ran then return {} end
  local start, began = string.match(r.ran, '^(%S+) (%S+)$')
  local facts = {'3', (r.leaseId or r.ranUnder or '') .. ':2', 'ran', began or '', r.statusSince or '',
    r.stage0 or ''}
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
  if r.ran then return behind == 0 and (r.leaseId or r.ranUnder or '') .. ':2' or nil end
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
