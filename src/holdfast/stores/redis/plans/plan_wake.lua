-- plan_wake: Makes plans due now.
-- ARGV 2… ids of plans that somebody should look at. One that has settled is left alone, and one
-- of the first version, which is still being made. Answers 1.
-- uses: numbers server full_memory time write_batch
-- keys: plan plans_due

local function wake(id, leased)
  rings.due = true
  if leased then return call('HSET', K.plan(id), 'woken', '1') end  -- until it is put down
  local at = try('ZSCORE', K.plans_due, id)
  local due = decimal(math.min(type(at) == 'string' and tonumber(at) or now, now))
  call('HSET', K.plan(id), 'dueAt', due)
  put_in(K.plans_due, id, due)
end

get_through()
for i = 2, #ARGV do
  local found = try('HMGET', K.plan(ARGV[i]), 'version', 'settledAt', 'leaseId')
  local version = not found.err and tonumber(found[1] or '')
  if version and version > 1 and not found[2] then wake(ARGV[i], found[3]) end
end
finish()
return 1
