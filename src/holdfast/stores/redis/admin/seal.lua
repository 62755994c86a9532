-- seal: Puts links behind the head of the audit chain.
-- ARGV 2 the head as read, 3 the head afterwards, 4 how many fields follow and 5… these, each with
-- its value (what is taken from which outbox), then the links. Answers whether they are in the
-- chain: not if it has another head by now.
-- uses: server
-- keys: chain ends

local head = call('HGET', K.ends, 'head') or ''
if head == ARGV[3] then return 1 end  -- this was sent twice
if head ~= ARGV[2] then return 0 end
local last = 4 + 2 * tonumber(ARGV[4])
call('RPUSH', K.chain, unpack(ARGV, last + 1))
call('HSET', K.ends, 'head', ARGV[3], unpack(ARGV, 5, last))
return 1
