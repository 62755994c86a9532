-- The requests that made the versions of a task.
-- uses: numbers server
-- keys: events

-- Returns the request that made a version: each has one element, the newest is the last.
local function request_of(r, version)
  local behind = tonumber(r.version) - tonumber(version)
  if r.unlogged then behind = behind - 1 end
  if r.ran then return behind == 0 and (r.leaseId or r.ranUnder or '') .. ':2' or nil end
  if behind < 0 then return nil end
  local found = call('LINDEX', K.events(r.id), whole(-behind - 1))
  if not found then return nil end
  local of, request = string.match(found, '^(%d+)\n([^\n]*)\n')
  return of == whole(tonumber(version)) and request or nil
end
