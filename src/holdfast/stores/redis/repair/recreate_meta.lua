-- recreate_meta: Writes the key that says what this store is again, after the store was emptied or
-- the key evicted.
-- ARGV 2 the format, 3 the number of partitions. The numbers that rise are gone with it: new ones
-- begin with the time, so that what is still there keeps its place before what comes. Answers 1 if
-- it was missing.
-- uses: iso_time numbers server time
-- keys: meta

if call('HGET', K.meta, 'format') then return 0 end
local order = math.max(tonumber(call('HGET', K.meta, 'order') or '0'), math.floor(wall * 1000))
call('HSET', K.meta, 'format', ARGV[2], 'partitions', ARGV[3], 'order', whole(order),
  'emptiedAt', iso(wall))
return 1
