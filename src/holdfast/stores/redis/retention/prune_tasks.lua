-- prune_tasks: Deletes tasks that settled long ago.
-- ARGV 2 settled before, 3 the seconds that a tombstone stays, 4 "1": only count, 5 "1": also
-- before their own time is over, 6 and 7 where to go on: a score, and how many of that score to
-- pass over, 8 how many. Answers how many were `seen` and how many are `outdated`, where to go on
-- (`score` and `passed`), and which are `unreadable`.
-- uses: numbers script_error server record request_log time write_batch burial
-- keys: saved settled
-- constants: PLACE.settled

local before, tombstone_seconds, dry_run = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local upto = ARGV[5] == '1' and '+inf' or decimal(wall)
local score, passed = ARGV[6], tonumber(ARGV[7])
local outdated, unreadable = 0, {}

local function words_of(member)
  local words = {}
  for word in string.gmatch(member .. '|', '([^|]*)|') do words[#words + 1] = word end
  return words
end

-- The server has let its record go already, with its time to live.
local function sweep(member)
  local id, tenant, plan, status, queue, fingerprint, day, key = unpack(words_of(member))
  call('ZREM', K.settled, member)
  call('ZREM', K.saved, id)
  count(queue, PLACE.settled, -1)
  unindex(id, tenant, plan, status, fingerprint, day)
  if key ~= '' then free_key(tenant, key, id) end
  delete_bodies(id)
end

-- True if it stays where it is.
local function prune(member)
  local id = string.match(member, '^[^|]*')
  local r, wrong = read(id)
  if not r and not wrong then
    outdated = outdated + 1
    if not dry_run then sweep(member) end
    return dry_run
  elseif not r then
    unreadable[#unreadable + 1] = id
    if dry_run or wrong == 'incomplete' then return true end  -- salvage will find it here
    call('ZREM', K.settled, member)
    return false
  elseif r.place ~= PLACE.settled then
    if not dry_run then call('ZREM', K.settled, member) end
    return dry_run
  end
  local settled_at = tonumber(r.settledAt)
  if not settled_at or settled_at >= before then return true end
  outdated = outdated + 1
  if dry_run then return true end
  call('ZREM', K.settled, member)
  bury(r, request_of(r, r.version) or '', settled_at, tombstone_seconds)
end

local found = call('ZRANGEBYSCORE', K.settled, score, upto, 'WITHSCORES',
  'LIMIT', passed, ARGV[8])
local done, wrong = pcall(function()
  for i = 1, #found, 2 do
    if found[i + 1] ~= score then score, passed = found[i + 1], 0 end
    if prune(found[i]) then passed = passed + 1 end
  end
end)
finish()
if not done then return failed(wrong) end
return {'seen', #found / 2, 'outdated', outdated, 'score', score, 'passed', passed,
  'unreadable', unreadable}
