-- gone_back: ARGV 2 the number of writes that had been answered. A promoted replica, or a server
-- that restarted from an older file, has fewer: how many, counted once for all who notice.

local lost = tonumber(ARGV[2]) - tonumber(call('HGET', K.meta, 'writes') or '0')
if lost <= 0 then return 0 end
call('HINCRBY', K.meta, 'writes', lost)
call('HINCRBY', K.meta, 'lostWrites', lost)
call('HSET', K.meta, 'lostAt', iso(wall))
return lost
