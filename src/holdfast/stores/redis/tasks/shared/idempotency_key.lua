-- The key of a task that is gone.
-- uses: server foreign_keys
-- keys: key_of

local function free_key(tenant, key, id)
  local name = K.key_of(tenant, key)
  local owner = follow('GET', name)
  if owner and string.sub(owner, 1, #id + 1) == id .. ' ' then call('DEL', name) end
end
