-- Suspended tasks by the fingerprint of their failure, and how many there are of each.
-- uses: server foreign_keys write_batch
-- keys: by_cause errors

local causes = {}

local function index_cause(id, before, after)
  if before == after then return end
  if before then
    take_from(K.by_cause(before), id)
    causes[before] = true
  end
  if after then
    put_in(K.by_cause(after), id)
    causes[after] = true
  end
end

-- Counts anew, so that no count can go astray. It runs after finish(), which writes the members.
local function count_causes()
  for cause in pairs(causes) do
    local tasks = follow('ZCARD', K.by_cause(cause)) or 0
    if tasks > 0 then call('ZADD', K.errors, tasks, cause) else call('ZREM', K.errors, cause) end
  end
end
