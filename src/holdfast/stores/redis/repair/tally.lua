-- tally: what can be compared in one step, over all queues: for each place what the counts say, and
-- how many there are.
-- uses: server
-- keys: counts leases retry settled

local says = {}
local counted = call('HGETALL', K.counts)
for i = 1, #counted, 2 do
  local place = string.match(counted[i], ' (%S+)$') or ''
  says[place] = (says[place] or 0) + tonumber(counted[i + 1])
end

local function compared(place, key) return {place, says[place] or 0, call('ZCARD', key)} end

return {compared('leased', K.leases), compared('later', K.retry), compared('settled', K.settled)}
