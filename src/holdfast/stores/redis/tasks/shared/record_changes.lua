-- Changes of a record that the store makes itself.
-- uses: iso_time numbers server time status_index transition_counts
-- keys: task

-- Sets the status after one of the store's own moves, and returns the fields that change with it.
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

local function set(r, changes) call('HSET', K.task(r.id), unpack(changes)) end
