-- chain_links: Reads links of the audit chain.
-- ARGV 2 behind which number, 3 how many. Answers the `ends` of the chain, and its `links`.
-- uses: numbers server
-- keys: chain ends

local base = string.match(call('HGET', K.ends, 'base') or '', '^%d+')
local first, count = math.max(0, tonumber(ARGV[2]) - tonumber(base or '0')), tonumber(ARGV[3])
local found = {}
if count > 0 then found = call('LRANGE', K.chain, whole(first), whole(first + count - 1)) end
return {'ends', call('HGETALL', K.ends), 'links', found}
