-- plan_due: ARGV 2 limit. Answers pairs of an id and since when somebody has to look at it, and the
-- seconds until there is something to look at.

return {call('ZRANGEBYSCORE', K.plans_due, '-inf', decimal(now), 'WITHSCORES', 'LIMIT', 0, ARGV[2]),
  next_plan()}
