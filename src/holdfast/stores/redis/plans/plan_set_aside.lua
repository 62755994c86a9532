-- plan_set_aside: Takes unreadable plans out of the list of due ones, so that nobody meets them
-- again.
-- ARGV 2… pairs of an id and a lease whose record cannot be read; one that has another lease by
-- now is left where it is.
-- uses: server
-- keys: plan plans_due

for i = 2, #ARGV, 2 do
  if try('HGET', K.plan(ARGV[i]), 'leaseId') == ARGV[i + 1] then call('ZREM', K.plans_due, ARGV[i]) end
end
return 1
