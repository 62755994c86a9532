-- Leases of triggers.
-- uses: iso_time numbers server time write_batch trigger_places
-- keys: trigger

local function has_lapsed(r) return r.owner and not (r.till and r.till > now) end

-- Gives a trigger to its new owner, in a new version: the old owner's writes are stale.
local function lease_trigger(r, waits, owner, seconds)
  local till = decimal(asked + seconds)
  local retries = r.retries + (has_lapsed(r) and 1 or 0)
  call('HSET', K.trigger(r.id), 'status', waits[r.status], 'version', whole(r.version + 1),
    'owner', owner, 'leaseUntil', till, 'retryCount', whole(retries), 'updatedAt', iso(wall))
  written = written + 1
  place_trigger({id = r.id, leased = till, owner = owner})
  return {r.id, call('HGETALL', K.trigger(r.id))}
end
