-- Suspended tasks by the fingerprint of their failure, and how many there are of each.
-- uses: server foreign_keys write_batch
-- keys: by_cause errors

local error_groups = {}

local function index_error_group(id, before, after)
  if before == after then return end
  if before then
    take_from(K.by_cause(before), id)
    error_groups[before] = true
  end
  if after then
    put_in(K.by_cause(after), id)
    error_groups[after] = true
  end
end

-- Counts anew, so that no count can go astray. It runs after finish(), which writes the members.
local function count_error_groups()
  for fingerprint in pairs(error_groups) do
    local tasks = follow('ZCARD', K.by_cause(fingerprint)) or 0
    if tasks > 0 then call('ZADD', K.errors, tasks, fingerprint) else call('ZREM', K.errors, fingerprint) end
  end
end
