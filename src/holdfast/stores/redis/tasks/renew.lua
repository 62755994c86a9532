-- renew: Renews leases, and writes down their worker's beat.
-- ARGV 2 worker, 3 its beat, 4 lease seconds, 5 the lock's seconds, then for each lease the task's
-- id, the lease's id and its progress.
-- uses: numbers server full_memory time
-- keys: leases lock seen task workers
-- constants: PLACE.leased

local worker, lease_until, lock_seconds = ARGV[2], decimal(asked + tonumber(ARGV[4])), ARGV[5]
local ends = tonumber(lease_until)  -- in the past: the server's clock was set
local kept = {}

get_through()
call('ZADD', K.seen, decimal(now), worker)
call('HSET', K.workers, worker, ARGV[3])
for i = 6, #ARGV, 3 do
  local id, lease, progress = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local found = try('HMGET', K.task(id), 'leaseId', 'tenantId', 'place')
  local mine = not found.err and found[1] == lease and found[3] == PLACE.leased and ends > now
  if mine then
    call('ZADD', K.leases, 'GT', lease_until, id)  -- a late one takes nothing away
    local tenant = found[2]
    if tenant and tenant ~= '' then call('SET', K.lock(tenant), id, 'EX', lock_seconds) end
    if progress ~= '' then call('HSET', K.task(id), 'progress', progress) end
  end
  kept[#kept + 1] = mine and 1 or 0
end
return kept
