-- seal_trim: Takes the sealed entries out of the outbox of a partition.
-- ARGV 2 how many had left the outbox, as read, 3 how many follow them, 4 the last of these.
-- Answers how many leave it now: none if someone else has been here.
-- uses: server
-- keys: audit meta

local count = tonumber(ARGV[3])
if (call('HGET', K.meta, 'sealed') or '0') ~= ARGV[2] then return 0 end
if call('LINDEX', K.audit, count - 1) ~= ARGV[4] then return 0 end
call('LTRIM', K.audit, count, -1)
call('HINCRBY', K.meta, 'sealed', count)
return count
