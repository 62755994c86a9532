-- plan_claim: Hands out due plans, each under a lease.
-- ARGV 2 owner, 3 limit, 4 lease seconds, 5 a secret, 6 the names to answer with. Answers those
-- `handed_out` (id, values), those that cannot be read (`wrong`: id, what is wrong; nothing: it is
-- gone), and the seconds until there is more to do (`wait`).
-- uses: numbers server full_memory time plan_record write_batch
-- keys: plan plans_due

local owner, secret, names = ARGV[2], ARGV[5], cmsgpack.unpack(ARGV[6])
local till = decimal(asked + tonumber(ARGV[4]))
local handed_out, wrong = {}, {}

-- Leases a plan. Fences rise, also over a failover.
local function lease(id, fence)
  fence = math.max(fence + 1, math.floor(now * 1000000))
  call('HSET', K.plan(id), 'leaseOwner', owner, 'leaseUntil', till, 'fence', whole(fence),
    'leaseId', secret .. ':' .. string.format('%x', fence))
  call('HDEL', K.plan(id), 'woken')
  put_in(K.plans_due, id, till)
  written = written + 1
  handed_out[#handed_out + 1] = {id, shown_plan(id, names)}
end

get_through()
local due = call('ZRANGEBYSCORE', K.plans_due, '-inf', decimal(now), 'LIMIT', 0, ARGV[3])
for _, id in ipairs(due) do
  local found = try('HMGET', K.plan(id), names[1], 'version', 'fence')
  local fence = not found.err and tonumber(found[3] or '0')
  if fence and found[1] and tonumber(found[2]) then
    lease(id, fence)
  else
    local is_gone = not found.err and call('EXISTS', K.plan(id)) == 0
    wrong[#wrong + 1] = {id, is_gone and '' or found.err or 'incomplete'}
    take_from(K.plans_due, id)
  end
end
finish()
return answered({'handed_out', handed_out, 'wrong', wrong, 'wait', next_plan()})
