-- prune_audit: ARGV 2 how many of the oldest, 3 the first and 4 the last of them, as read.
-- Answers how many are gone: none if someone else has pruned meanwhile.

local last = tonumber(ARGV[2]) - 1
local function at(index) return call('LINDEX', K.audit, index) end
if at(0) ~= ARGV[3] or at(last) ~= ARGV[4] then return 0 end
call('LTRIM', K.audit, last + 1, -1)
return last + 1
