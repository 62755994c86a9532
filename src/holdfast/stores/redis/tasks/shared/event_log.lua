-- The list of a task's events: one element for each version.
-- uses: server foreign_keys write_batch
-- keys: events
-- constants: STARTED

local function started(r, version, at)
  local owner = r.leaseOwner or r.ranBy or ''
  return table.concat({version, '', STARTED, at, owner, r.fence or '0'}, '\n')
end

-- Returns the events that only the record tells, as elements of their list: that it was started, or
-- that it ran straight through (`ran`: when it was started, and when its only stage was).
local function unlogged_of(r)
  if r.unlogged then return {started(r, r.version, r.updatedAt or '')} end
  if not r.ran then return {} end
  local start, began = string.match(r.ran, '^(%S+) (%S+)$')
  local facts = {'3', (r.leaseId or r.ranUnder or '') .. ':2', 'ran', began or '', r.statusSince or '',
    r.stage0 or ''}
  return {started(r, '2', start or ''), table.concat(facts, '\n')}
end

-- Makes the first write of every change. False: the key is of another type, and nothing was written.
-- Until something else happens, only the lease tells that a task was started.
local function log_elements(id, ...)
  if is_strange(try('RPUSH', K.events(id), ...)) then return false end
  written = written + 1
  return true
end

local function log_event(r, version, request, body)
  local elements = unlogged_of(r)
  elements[#elements + 1] = version .. '\n' .. request .. '\n' .. body
  return log_elements(r.id, unpack(elements))
end
