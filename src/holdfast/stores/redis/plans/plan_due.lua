-- plan_due: Finds the plans that are due; nothing is handed out.
-- ARGV 2 limit. Answers pairs of an id and since when it is due (`due`), and the seconds until
-- there is something to do (`wait`).
-- uses: numbers server time plan_record
-- keys: plans_due

return {'due', call('ZRANGEBYSCORE', K.plans_due, '-inf', decimal(now), 'WITHSCORES',
  'LIMIT', 0, ARGV[2]), 'wait', next_plan()}
