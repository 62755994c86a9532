-- drop_stray_task: Takes an id without a record of ours out of all lists that would hand it out
-- again.
-- ARGV 2 an id without a record that is ours, 3… pairs of a queue and an entry there. Answers 1,
-- or 0 if there is a record.
-- uses: server
-- keys: back leases queues retry stream task
-- constants: GROUP

local id = ARGV[2]
if call('TYPE', K.task(id)).ok == 'hash' then return 0 end
call('ZREM', K.leases, id)
call('ZREM', K.retry, id)
for _, queue in ipairs(call('SMEMBERS', K.queues)) do call('ZREM', K.back(queue), id) end
for i = 3, #ARGV, 2 do
  local stream, entry = K.stream(ARGV[i]), ARGV[i + 1]
  call('XACK', stream, GROUP, entry)
  call('XDEL', stream, entry)
end
return 1
