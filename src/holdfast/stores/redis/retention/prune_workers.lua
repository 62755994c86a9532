-- prune_workers: Forgets workers that have not been seen for long.
-- ARGV 2 last seen before, 3… workers. Answers how many are forgotten: one that has been seen
-- since then stays.
-- uses: server
-- keys: claims seen switches workers

local gone = 0
for i = 3, #ARGV do
  local worker = ARGV[i]
  local seen = tonumber(call('ZSCORE', K.seen, worker) or '-inf')
  if not seen or seen < tonumber(ARGV[2]) then
    call('HDEL', K.workers, worker)
    call('ZREM', K.seen, worker)
    call('HDEL', K.claims, worker)
    call('HDEL', K.switches, 'drain ' .. worker)
    gone = gone + 1
  end
end
return gone
