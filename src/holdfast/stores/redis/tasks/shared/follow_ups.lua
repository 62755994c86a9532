-- Tasks that follow from what happens to another one. They are not refused for a queue that is full,
-- switched off or unusable.
-- uses: submissions

-- Returns the key that is in their way. It is called before anything is written.
local function in_way_of(follows)
  for _, s in ipairs(follows) do
    local met = met_before(s)
    if met and met[1] == 'foreign' then return met[2] end
  end
end

local function accept_all(follows)
  submits = #follows
  for _, s in ipairs(follows) do
    if not met_before(s) then accept(s) end
  end
end
