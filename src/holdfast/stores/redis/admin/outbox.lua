-- outbox: Reads the outbox of audit entries that are not in the chain yet.
-- ARGV 2 and 3 the places of the first and the last that are wanted. Answers how many have left
-- the outbox (`gone`), how many are in it (`length`), those that are wanted (`bodies`), and the
-- time (`at`).
-- uses: numbers server time
-- keys: audit meta

return {'gone', tonumber(call('HGET', K.meta, 'sealed') or '0'), 'length', call('LLEN', K.audit),
  'bodies', call('LRANGE', K.audit, ARGV[2], ARGV[3]), 'at', decimal(wall)}
