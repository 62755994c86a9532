-- prune_claims: Forgets the last claims of workers that are gone.
-- ARGV 2… pairs of a worker and the digest of its last claim, as read. Answers how many are gone:
-- who has claimed since then may still repeat that claim.
-- uses: server
-- keys: claims

local gone = 0
for i = 2, #ARGV, 2 do
  local last = call('HGET', K.claims, ARGV[i])
  if last and redis.sha1hex(last) == ARGV[i + 1] then
    gone = gone + call('HDEL', K.claims, ARGV[i])
  end
end
return gone
