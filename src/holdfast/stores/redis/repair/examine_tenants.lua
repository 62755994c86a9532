-- examine_tenants: Compares tenants' lines with their active tasks.
-- ARGV 2 "1": repair, 3… tenants. Answers for each complaint the `tenant`, a `message`, and whether
-- it was `mended`.
-- uses: numbers server tenant_place write_batch queue_entry tenant_line
-- keys: active line lock resting
-- constants: MAY_BE_ACTIVE PLACE.leased

local fix = ARGV[2] == '1'
local complaints = {}

local function complain(tenant, message, cure, ...)
  if fix then cure(...) end
  complaints[#complaints + 1] = {'tenant', tenant, 'message', message, 'mended', fix and 1 or 0}
end

local function look(tenant)
  local active, lock = call('GET', K.active(tenant)), call('GET', K.lock(tenant))
  if lock and place_for(tenant, lock) ~= PLACE.leased then
    complain(tenant, 'is locked by ' .. lock .. ', which does not run', call, 'DEL', K.lock(tenant))
  end
  if active and not MAY_BE_ACTIVE[place_for(tenant, active)] then
    return complain(tenant, 'says that ' .. active .. ' is active, but it is not', function()
      call('DEL', K.active(tenant))
      advance(tenant, nil)
    end)
  end
  local waiting = call('ZCARD', K.line(tenant))
  if waiting > 0 and line_is_open(active) then
    local message = 'has an open line that has not moved; tasks that wait: ' .. whole(waiting)
    complain(tenant, message, advance, tenant, active)
  elseif not active and call('ZCARD', K.resting(tenant)) > 0 then
    complain(tenant, 'has paused, suspended or retrying tasks, but none is active', advance, tenant, nil)
  end
end

for i = 3, #ARGV do look(ARGV[i]) end
finish()
return complaints
