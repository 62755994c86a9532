-- A tenant's active task: the one that its others wait behind.
-- uses: server foreign_keys
-- keys: active

local function active_of(tenant) return follow('GET', K.active(tenant)) end

local function set_active(tenant, id)
  local name = K.active(tenant)
  if strangers[name] then return end
  if id then call('SET', name, id) else call('DEL', name) end
end
