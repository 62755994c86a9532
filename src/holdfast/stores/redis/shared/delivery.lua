-- How far the workers have read a queue.
-- uses: server
-- constants: GROUP

-- Returns the last entry that was handed out; nil: no worker has read the stream yet.
local function last_delivered(stream)
  local groups = try('XINFO', 'GROUPS', stream)
  for _, group in ipairs(groups.err and {} or groups) do
    local facts = {}
    for i = 1, #group, 2 do facts[group[i]] = group[i + 1] end
    if facts.name == GROUP then return facts['last-delivered-id'] end
  end
end
