-- lost_writes: Counts writes that had been answered and are gone.
-- ARGV 2 the number of writes that had been answered, 3 how many the server had when that was
-- noticed. A promoted replica, or a server that restarted from an older file, has fewer. What
-- several notice is counted once: `lostTo` is how far it has been counted. Answers how many are
-- newly counted (`lost`), and the number of `writes` from which to go on.
-- uses: iso_time numbers server time
-- keys: meta

local answered, before = tonumber(ARGV[2]), tonumber(ARGV[3])
local writes = tonumber(call('HGET', K.meta, 'writes') or '0')
local lost = answered - math.max(before, tonumber(call('HGET', K.meta, 'lostTo') or '0'))
if lost <= 0 then return {'lost', 0, 'writes', writes} end
writes = math.max(writes, answered)
call('HSET', K.meta, 'writes', whole(writes), 'lostTo', whole(answered), 'lostAt', iso(wall))
call('HINCRBY', K.meta, 'lostWrites', whole(lost))
return {'lost', lost, 'writes', writes}
