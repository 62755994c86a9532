-- prune_triggers: Deletes triggers that ended long ago.
-- ARGV 2 ended before, 3 "1": only count, 4 "1": also before their own time is over, 5 and 6 where
-- to go on: a score, and how many of that score to pass over, 7 how many. Answers how many were
-- seen and how many are outdated, and where to go on.
-- uses: server expired_records trigger_places
-- keys: trigger triggers_ended

local before = tonumber(ARGV[2])

local function outdated(id)
  local ended = try('HGET', K.trigger(id), 'endedAt')
  if type(ended) ~= 'string' then return call('EXISTS', K.trigger(id)) == 0 or nil end
  local at = tonumber(ended)
  return at ~= nil and at < before
end

return sweep_ended(K.triggers_ended, ARGV[4] == '1', ARGV[5], tonumber(ARGV[6]), ARGV[7],
  ARGV[3] == '1', outdated, forget_trigger)
