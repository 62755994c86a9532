-- leave: Forgets a worker that stops for good.
-- ARGV 2 the worker. A consumer with pending entries stays.
-- uses: server
-- keys: claims queues seen stream switches workers
-- constants: GROUP

local worker = ARGV[2]
call('HDEL', K.workers, worker)
call('ZREM', K.seen, worker)
call('HDEL', K.claims, worker)
call('HDEL', K.switches, 'drain ' .. worker)
for _, queue in ipairs(call('SMEMBERS', K.queues)) do
  local stream = K.stream(queue)
  local pending = try('XPENDING', stream, GROUP, '-', '+', 1, worker)
  if not pending.err and #pending == 0 then call('XGROUP', 'DELCONSUMER', stream, GROUP, worker) end
end
return 1
