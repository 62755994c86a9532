-- A plan's record. The list of a plan's tasks is long, and never read.
-- uses: numbers server time
-- keys: plan plan_admitted plan_events plan_members plans_due

local function plan_key_names(id)
  return {K.plan(id), K.plan_members(id), K.plan_admitted(id), K.plan_events(id)}
end

-- Returns the values of these names in a record, or false if there is none.
local function shown_plan(id, names)
  local found = try('HMGET', K.plan(id), unpack(names))
  if found.err or not found[1] then return false end
  return found
end

-- Returns the seconds until the next plan is due.
local function next_plan()
  local due = call('ZRANGE', K.plans_due, 0, 0, 'WITHSCORES')[2]
  return due and decimal(math.max(0, tonumber(due) - now)) or ''
end
