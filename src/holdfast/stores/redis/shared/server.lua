-- The commands of the server, and the refusal to run on half of a partition.
-- keys: meta

local call, try = redis.call, redis.pcall

-- Two keys, one of which never exists: while a Cluster (with its braces) moves the slot this is
-- refused on both sides, before anything is written where half of the keys are missing.
if string.sub(P, 1, 1) == '{' then call('EXISTS', K.meta, K.meta .. ':none') end
