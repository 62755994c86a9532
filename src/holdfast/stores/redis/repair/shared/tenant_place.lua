-- The place of a tenant's task.
-- uses: server
-- keys: task

-- Returns the place; empty if the record cannot be read, or is of another tenant.
local function place_for(tenant, id)
  local found = try('HMGET', K.task(id), 'place', 'tenantId')
  return not found.err and found[2] == tenant and found[1] or ''
end
