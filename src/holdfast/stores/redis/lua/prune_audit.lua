-- prune_audit: ARGV 2 how many of the oldest, 3 the first and 4 the last of them, as they were read.
-- Answers how many are gone: none if someone else has pruned meanwhile.

local last = tonumber(ARGV[2]) - 1
if call('LINDEX', K.audit, 0) ~= ARGV[3] or call('LINDEX', K.audit, last) ~= ARGV[4] then return 0 end
call('LTRIM', K.audit, last + 1, -1)
return last + 1
