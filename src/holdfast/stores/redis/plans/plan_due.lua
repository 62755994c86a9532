-- plan_due: ARGV 2 limit. Answers pairs of an id and since when somebody has to look at it, and the
-- seconds until there is something to look at.
-- uses: numbers server time plan_record
-- keys: plans_due

return {call('ZRANGEBYSCORE', K.plans_due, '-inf', decimal(now), 'WITHSCORES', 'LIMIT', 0, ARGV[2]),
  next_plan()}
