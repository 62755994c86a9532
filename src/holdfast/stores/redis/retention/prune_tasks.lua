-- prune_tasks: Deletes tasks that settled long ago.
-- ARGV 2 settled before, 3 the seconds that a tombstone stays, 4 "1": only count, 5 "1": also
-- before their own time is over, 6 and 7 where to go on: a score, and how many of that score to
-- pass over, 8 how many. Answers how many were `seen` and how many are `outdated`, where to go on
-- (`score` and `passed`), and which are `unreadable`.
-- uses: lists server record request_log write_batch burial expired_records
-- keys: saved settled
-- constants: PLACE.settled

local before, unreadable = tonumber(ARGV[2]), {}

local function words_of(member)
  local words = {}
  for word in string.gmatch(member .. '|', '([^|]*)|') do words[#words + 1] = word end
  return words
end

-- The server has let its record go already, with its time to live.
local function sweep(member)
  local id, tenant, plan, status, queue, fingerprint, day, key = unpack(words_of(member))
  call('ZREM', K.saved, id)
  count(queue, PLACE.settled, -1)
  unindex(id, tenant, plan, status, fingerprint, day)
  if key ~= '' then free_key(tenant, key, id) end
  delete_bodies(id)
end

local function outdated(member)
  local id = string.match(member, '^[^|]*')
  local r, wrong = read(id)
  if not r and not wrong then return true end
  if not r then
    unreadable[#unreadable + 1] = id
    if wrong == 'incomplete' then return false end  -- salvage will find it here
    return nil
  end
  if r.place ~= PLACE.settled then return nil end
  local settled_at = tonumber(r.settledAt)
  return settled_at ~= nil and settled_at < before, r
end

local function forget(member, r)
  call('ZREM', K.settled, member)
  if not r then return sweep(member) end
  bury(r, request_of(r, r.version) or '', tonumber(r.settledAt), tonumber(ARGV[3]))
end

local answer = sweep_ended(K.settled, ARGV[5] == '1', ARGV[6], tonumber(ARGV[7]), ARGV[8],
  ARGV[4] == '1', outdated, forget)
if not answer.err then add(answer, 'unreadable', unreadable) end
return answer
