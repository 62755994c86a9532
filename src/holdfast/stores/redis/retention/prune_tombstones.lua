-- prune_tombstones: Deletes tombstones that have ended.
-- ARGV 2 ended before, 3 how many. Answers how many are gone.
-- uses: server burial
-- keys: tombstone tombstones

local found = call('ZRANGEBYSCORE', K.tombstones, '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(found) do
  local facts = try('HMGET', K.tombstone(id), 'tenantId', 'key')
  call('ZREM', K.tombstones, id)
  if not facts.err then
    call('DEL', K.tombstone(id))
    if facts[2] then free_key(facts[1] or '', facts[2], id) end
  end
end
return #found
