-- The name of a settled task in the list of the settled.

-- Returns a name with all that the sweep needs when the record itself has expired.
local function grave(r)
  return table.concat({r.id, r.tenantId or '', r.planId or '', r.status, r.queue, r.error or '',
    string.sub(r.createdAt or '', 1, 10), r.key or ''}, '|')
end
