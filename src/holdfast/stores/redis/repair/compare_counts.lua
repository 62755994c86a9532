-- compare_counts: Compares counts with indexes, in one step and over all queues.
-- Answers for each `place` the number that is `counted`, and the number of `tasks` there are.
-- uses: server
-- keys: counts leases retry settled
-- constants: PLACE.later PLACE.leased PLACE.settled

local by_place = {}
local counted = call('HGETALL', K.counts)
for i = 1, #counted, 2 do
  local place = string.match(counted[i], ' (%S+)$') or ''
  by_place[place] = (by_place[place] or 0) + tonumber(counted[i + 1])
end

local function compared(place, key)
  return {'place', place, 'counted', by_place[place] or 0, 'tasks', call('ZCARD', key)}
end

return {compared(PLACE.leased, K.leases), compared(PLACE.later, K.retry), compared(PLACE.settled, K.settled)}
