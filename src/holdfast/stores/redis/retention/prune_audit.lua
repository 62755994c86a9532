-- prune_audit: Cuts the oldest links off the audit chain.
-- ARGV 2 the base as read, 3 the base afterwards, 4 how many of the oldest links go, 5 the number
-- of the new base and the time of the newest entry that is gone with it. Answers how many are
-- gone: none if someone else has pruned meanwhile.
-- uses: server
-- keys: chain ends

local count, base = tonumber(ARGV[4]), call('HGET', K.ends, 'base') or ''
if base == ARGV[3] then return count end  -- this was sent twice
if base ~= ARGV[2] then return 0 end
call('LTRIM', K.chain, count, -1)
call('HSET', K.ends, 'base', ARGV[3], 'cleaned', ARGV[5])
return count
