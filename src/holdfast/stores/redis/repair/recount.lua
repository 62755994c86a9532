-- recount: Corrects the counts of tasks by queue and place.
-- ARGV 2 how much had been written, 3 how many counts there were then, 4… these, then all as they
-- should be: pairs of a field and a number. Answers 1 if they are that now, and 0 if someone has
-- written or counted meanwhile.
-- uses: numbers server
-- keys: counts meta

local function pairs_of(flat, from, upto)
  local found = {}
  for i = from, upto, 2 do found[flat[i]] = tonumber(flat[i + 1]) end
  return found
end

local split = 3 + 2 * tonumber(ARGV[3])
local before, wanted = pairs_of(ARGV, 4, split), pairs_of(ARGV, split + 1, #ARGV)
local found = call('HGETALL', K.counts)
local counted = pairs_of(found, 1, #found)

local function are(counts)
  for field, number in pairs(counts) do
    if counted[field] ~= number then return false end
  end
  for field in pairs(counted) do
    if not counts[field] then return false end
  end
  return true
end

if (call('HGET', K.meta, 'writes') or '') ~= ARGV[2] then return 0 end
if are(wanted) then return 1 end
if not are(before) then return 0 end
for field in pairs(counted) do
  if not wanted[field] then call('HDEL', K.counts, field) end
end
for field, number in pairs(wanted) do call('HSET', K.counts, field, whole(number)) end
return 1
