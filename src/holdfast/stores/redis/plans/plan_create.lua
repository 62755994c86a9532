-- plan_create: Creates a plan, unless there is one of its id.
-- ARGV 2 the id, 3 its name in the list of plans, 4 the names to answer with, 5 its first events,
-- 6… its fields. Answers the record as it is now.
-- uses: server plan_record write_batch
-- keys: plan plan_admitted plan_events plan_members plans

local id, names = ARGV[2], cmsgpack.unpack(ARGV[4])
local kinds = {[K.plan(id)] = 'hash', [K.plan_members(id)] = 'hash', [K.plan_admitted(id)] = 'zset',
  [K.plan_events(id)] = 'list'}
for name, wanted in pairs(kinds) do
  local kind = call('TYPE', name).ok
  if kind ~= wanted and kind ~= 'none' then return {'answer', {'foreign', name}} end
end
if call('EXISTS', K.plan(id)) == 1 then return {'answer', {'there', shown_plan(id, names)}} end
call('HSET', K.plan(id), unpack(ARGV, 6))
call('DEL', K.plan_members(id), K.plan_admitted(id), K.plan_events(id))  -- of one that was here before
call('RPUSH', K.plan_events(id), ARGV[5])
put_in(K.plans, ARGV[3])
written = written + 1
finish()
return answered({'created', shown_plan(id, names)})
