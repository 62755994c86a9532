-- examine_plans: Reads what belongs to a plan, or repairs it.
-- ARGV 2 the id, 3 the names to answer with, 4 nothing, or what to repair: it is written to the
-- version that was looked at only. Answers the `type` of its key, its `values`, its `members`, the
-- tasks that have a slot (`admitted`), when it is due by its record (`due`) and by the list
-- (`listed_due`), and whether it is in the list of plans (`listed`).
-- uses: server foreign_keys write_batch
-- keys: plan plan_admitted plan_members plans plans_due

local id, names = ARGV[2], cmsgpack.unpack(ARGV[3])
local kind = call('TYPE', K.plan(id)).ok
if kind ~= 'hash' then return {'type', kind} end

local function mend(cure)
  if call('HGET', K.plan(id), 'version') ~= cure.version then return 0 end
  if cure.listed then call('ZADD', K.plans, 0, cure.listed) end
  if cure.due then call('ZADD', K.plans_due, cure.due, id) end
  if cure.rests then call('ZREM', K.plans_due, id) end
  if cure.admitted then
    call('DEL', K.plan_admitted(id))
    for i = 1, #cure.admitted, 2 do
      call('ZADD', K.plan_admitted(id), cure.admitted[i], cure.admitted[i + 1])
    end
  end
  rings.due = true
  finish()
  return 1
end

if ARGV[4] ~= '' then return mend(cmsgpack.unpack(ARGV[4])) end

local function part(...)
  local found = try(...)
  return not is_strange(found) and found
end

local found = call('HMGET', K.plan(id), 'createdAt', 'leaseId', 'leaseUntil', 'dueAt')
local due = found[2] and found[3] or found[4]  -- while somebody has it, when his lease is over
return {'type', kind, 'values', call('HMGET', K.plan(id), unpack(names)),
  'members', part('HGETALL', K.plan_members(id)),
  'admitted', part('ZRANGE', K.plan_admitted(id), 0, -1, 'WITHSCORES'),
  'due', due, 'listed_due', call('ZSCORE', K.plans_due, id),
  'listed', call('ZSCORE', K.plans, (found[1] or '') .. ' ' .. id)}
