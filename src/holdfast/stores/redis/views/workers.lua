-- workers: Reads the workers.
-- Answers the time (`now`), every worker's last beat (`beats`), and when it came (`seen`).
-- uses: numbers server time
-- keys: seen workers

return {'now', decimal(now), 'beats', call('HGETALL', K.workers),
  'seen', call('ZRANGE', K.seen, 0, -1, 'WITHSCORES')}
