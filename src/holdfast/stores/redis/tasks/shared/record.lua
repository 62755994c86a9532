-- A task's record, as a table.
-- uses: numbers server
-- keys: task
-- constants: KEEP PLACE.settled

-- The last lease says which fence it had, and which version it made. It is in force while the place
-- is 'leased'. As long as the record has that version, only the lease says that it was started.
-- Of a settled record it is its last one, `ranUnder`: nobody is to take it for one in force.
local function know_lease(r)
  local fence, version = string.match(r.leaseId or r.ranUnder or '', ':(%x+):(%d+)$')
  if fence then
    r.fence = whole(tonumber(fence, 16))
    r.unlogged = r.leaseId and version == r.version
  end
end

-- Returns a record and its fields, or nil and what is wrong: nil (there is none) or a text.
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
  if r.place == PLACE.settled then r.settledAt = r.settledAt or r.statusSince end
  know_lease(r)
  return r, fields
end
