-- prune_consumers: Deletes consumers of a queue whose workers are gone.
-- ARGV 2 queue, 3… consumers. Answers how many are gone: whoever has pending entries stays, as
-- they would be lost with it.
-- uses: server
-- keys: stream
-- constants: GROUP

local stream, gone = K.stream(ARGV[2]), 0
for i = 3, #ARGV do
  local pending = try('XPENDING', stream, GROUP, '-', '+', 1, ARGV[i])
  if not pending.err and #pending == 0 then
    call('XGROUP', 'DELCONSUMER', stream, GROUP, ARGV[i])
    gone = gone + 1
  end
end
return gone
