-- loose: ARGV 2 and 3 the places of the first and the last that are wanted. How many have left the
-- outbox, how many are in it, those that are wanted, and the time.
-- uses: numbers server time
-- keys: audit meta

return {tonumber(call('HGET', K.meta, 'sealed') or '0'), call('LLEN', K.audit),
  call('LRANGE', K.audit, ARGV[2], ARGV[3]), decimal(wall)}
