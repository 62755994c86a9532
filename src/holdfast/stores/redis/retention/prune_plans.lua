-- prune_plans: Deletes plans that settled long ago.
-- ARGV 2 settled before, 3 "1": only count, 4 "1": also before their own time is over, 5 and 6
-- where to go on: a score, and how many of that score to pass over, 7 how many. Answers how many
-- were seen and how many are outdated, and where to go on.
-- uses: server plan_record write_batch expired_records
-- keys: plan plans plans_due plans_settled

local before, dry_run = tonumber(ARGV[2]), ARGV[3] == '1'

local function id_of(listed) return string.match(listed, '^%S+ (.*)$') or listed end

-- The server may have let the record go already, with its time to live; there may be a new one.
local function outdated(listed)
  local id = id_of(listed)
  local found = try('HMGET', K.plan(id), 'settledAt', 'createdAt')
  if found.err then return nil end
  if not found[2] then return call('EXISTS', K.plan(id)) == 0 or nil end
  if found[2] .. ' ' .. id ~= listed then
    if not dry_run then take_from(K.plans, listed) end
    return nil
  end
  if not found[1] then return nil end
  local at = tonumber(found[1])
  return at ~= nil and at < before
end

local function forget(listed)
  local id = id_of(listed)
  call('DEL', unpack(plan_key_names(id)))
  take_from(K.plans, listed)
  take_from(K.plans_settled, listed)
  take_from(K.plans_due, id)
end

return sweep_ended(K.plans_settled, ARGV[4] == '1', ARGV[5], tonumber(ARGV[6]), ARGV[7], dry_run,
  outdated, forget)
