-- examine_members: Compares the members of a list or an index with their records.
-- ARGV 2 "1": take away, 3 what it is, 4 whose, 5… its members (of a stream: entries). Answers
-- each `member` whose record does not say that it belongs there, with its `task` and what the
-- record says instead (`message`).
-- uses: grave server record
-- keys: all key payload settled stream task tombstone
-- constants: GROUP PLACE.later PLACE.leased PLACE.line PLACE.ready PLACE.settled RESTING

local fix, kind, of = ARGV[2] == '1', ARGV[3], ARGV[4]

local function has(field)
  return function(r) return r[field] == of end
end

local function is_in(place)
  return function(r) return r.place == place end
end

local belongs = {
  by_status = has('status'),
  by_plan = has('planId'),
  by_tenant = has('tenantId'),
  by_error = has('error'),
  by_cause = function(r) return r.suspendedAt ~= nil and r.error == of end,
  by_day = function(r) return string.sub(r.createdAt or '', 1, 10) == of end,
  leases = is_in(PLACE.leased),
  retry = is_in(PLACE.later),
  suspended = function(r) return r.suspendedAt ~= nil end,
  saved = is_in(PLACE.settled),
  back = function(r) return r.place == PLACE.ready and r.queue == of end,
  line = function(r) return r.place == PLACE.line and r.tenantId == of end,
  resting = function(r) return r.tenantId == of and RESTING[r.place] and not r.holds end,
}

local function key_of_set()
  local name = K[kind]
  return type(name) == 'function' and name(of) or name
end

local function stands_for(r)
  if not r then return 'has no record' end
  return 'is ' .. r.place .. ' and ' .. r.status
end

local found = {}
local function stray(member, id, r)
  found[#found + 1] = {'member', member, 'task', id, 'message', stands_for(r)}
end

local function of_set(member)
  local key = key_of_set()
  local set = kind == 'by_day'
  local there = set and call('SISMEMBER', key, member) == 1
    or not set and call('ZSCORE', key, member)
  if not there then return end
  local r, wrong = read(member)
  if r and belongs[kind](r) or not r and wrong == 'incomplete' then return end
  stray(member, member, r)
  if fix then call(set and 'SREM' or 'ZREM', key, member) end
end

local function of_settled(member)
  if not call('ZSCORE', K.settled, member) then return end
  local id = string.match(member, '^[^|]*')
  local r, wrong = read(id)
  -- Without a record it waits to be swept; with one that cannot be read, it is left to salvage.
  if not r and (not wrong or wrong == 'incomplete') then return end
  if r and r.place == PLACE.settled and grave(r) == member then return end
  stray(member, id, r)
  if fix then call('ZREM', K.settled, member) end
end

local queued = {[PLACE.ready] = true, [PLACE.leased] = true}

local function of_stream(entry)
  local stream = K.stream(of)
  local there = call('XRANGE', stream, entry, entry)
  local id = there[1] and there[1][2][1] == 'taskId' and there[1][2][2] or ''
  if there[1] then
    local r, wrong = read(id)
    if not r and wrong == 'incomplete' then return end
    if r and r.entry == entry and r.queue == of and queued[r.place] then return end
    stray(entry, id, r)
  else
    local pending = try('XPENDING', stream, GROUP, entry, entry, 1)
    if pending.err or #pending == 0 then return end
    found[#found + 1] = {'member', entry, 'task', '',
      'message', 'is gone, but ' .. pending[1][2] .. ' still has it'}
  end
  if fix then
    try('XACK', stream, GROUP, entry)
    call('XDEL', stream, entry)
  end
end

-- Finds the key of a task that is gone: it keeps nobody out, and is only in the way.
local function of_key(name)
  local owner = call('GET', K.key(name))
  local id = owner and string.match(owner, '^(%S+) ')
  if not id or call('EXISTS', K.task(id), K.tombstone(id)) > 0 then return end
  stray(name, id)
  if fix then call('DEL', K.key(name)) end
end

-- Finds the payload of a task without a record. Nothing can be derived from it, so it stays.
local function of_payload(id)
  if call('EXISTS', K.payload(id)) == 1 and call('EXISTS', K.task(id)) == 0 then stray(id, id) end
end

local looks = {settled = of_settled, stream = of_stream, key = of_key, payload = of_payload}
local look = looks[kind] or of_set
for i = 5, #ARGV do look(ARGV[i]) end
return found
