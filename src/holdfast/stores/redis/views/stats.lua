-- stats: Reads the counts of a partition.
-- ARGV 2… the statuses. Answers the time (`now`), how many tasks each status has (`sizes`), the
-- counters, and the seconds until the first lease, task, trigger and plan is due; below 0: it is
-- late.
-- uses: numbers server time
-- keys: by_status counts durations leases moves plans_due refused retry triggers_due
--   triggers_leased

local sizes = {}
for i = 2, #ARGV do sizes[i - 1] = call('ZCARD', K.by_status(ARGV[i])) end
local function wait(...)
  local least
  for _, pair in ipairs({...}) do
    local first = call('ZRANGE', pair[1], 0, 0, 'WITHSCORES')[2]
    if first then least = math.min(least or math.huge, tonumber(first) / pair[3] - pair[2]) end
  end
  return least and decimal(least) or ''
end

return {'now', decimal(now), 'sizes', sizes, 'counts', call('HGETALL', K.counts),
  'moves', call('HGETALL', K.moves), 'refused', call('HGETALL', K.refused),
  'durations', call('HGETALL', K.durations), 'waits', {
    'lease', wait({K.leases, now, 1}), 'task', wait({K.retry, now, 1}),
    'trigger', wait({K.triggers_due, wall, 1000}, {K.triggers_leased, now, 1}),
    'plan', wait({K.plans_due, now, 1})}}
