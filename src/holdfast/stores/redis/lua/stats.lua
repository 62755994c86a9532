-- stats: ARGV 2… the statuses. The time, how many tasks each has, and what is counted elsewhere.

local sizes = {}
for i = 2, #ARGV do sizes[i - 1] = call('ZCARD', K.by_status(ARGV[i])) end
return {decimal(now), sizes, call('HGETALL', K.counts), call('HGETALL', K.moves),
  call('HGETALL', K.refused), call('HGETALL', K.durations)}
