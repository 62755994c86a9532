-- plan_renew: Renews the lease of a plan, or gives it back.
-- ARGV 2 the id, 3 the lease's id, 4 lease seconds (0: it is given back). Answers 1, or 0: the
-- lease is lost.
-- uses: numbers server full_memory time write_batch
-- keys: plan plans_due

local id, seconds = ARGV[2], tonumber(ARGV[4])
local till = seconds > 0 and asked + seconds or now
local found = try('HGET', K.plan(id), 'leaseId')
if found ~= ARGV[3] or seconds > 0 and till <= now then return 0 end
get_through()
call('HSET', K.plan(id), 'leaseUntil', decimal(till))
call('ZADD', K.plans_due, decimal(till), id)
if seconds <= 0 then rings.due = true end  -- others wait for the end that it had
finish()
return 1
