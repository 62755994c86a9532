-- workers: the time, every worker's last beat, and when it came.
-- uses: numbers server time
-- keys: seen workers

return {decimal(now), call('HGETALL', K.workers), call('ZRANGE', K.seen, 0, -1, 'WITHSCORES')}
