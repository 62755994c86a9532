-- examine_tenants: Compares tenants' lines with their active tasks.
-- ARGV 2 "1": mend, 3… tenants. Answers for each complaint the `tenant`, a `message`, and whether
-- it was `mended`.
-- uses: numbers server write_batch queue_entry tenant_queue
-- keys: active line lock resting task
-- constants: MAY_BE_ACTIVE PLACE.leased

local fix = ARGV[2] == '1'
local complaints = {}

local function complain(tenant, says, cure)
  if fix then cure() end
  complaints[#complaints + 1] = {'tenant', tenant, 'message', says, 'mended', fix and 1 or 0}
end

-- Its active task, if it may be that: one that is unreadable is left to the doctor's other look.
local function may_be_active(tenant, id)
  local a = try('HMGET', K.task(id), 'place', 'tenantId')
  return not a.err and a[1] and MAY_BE_ACTIVE[a[1]] and a[2] == tenant
end

local function look(tenant)
  local active, lock = call('GET', K.active(tenant)), call('GET', K.lock(tenant))
  if lock then
    local a = try('HMGET', K.task(lock), 'place', 'tenantId')
    if a.err or a[1] ~= PLACE.leased or a[2] ~= tenant then
      complain(tenant, 'is locked by ' .. lock .. ', which does not run', function()
        call('DEL', K.lock(tenant))
      end)
    end
  end
  if active and not may_be_active(tenant, active) then
    return complain(tenant, 'says that ' .. active .. ' is active, which is not', function()
      call('DEL', K.active(tenant))
      advance(tenant, nil)
    end)
  end
  local waiting = call('ZCARD', K.line(tenant))
  if waiting > 0 and line_is_open(active) then
    complain(tenant, 'has ' .. whole(waiting) .. ' in line, and nobody before them', function()
      advance(tenant, active)
    end)
  elseif not active and call('ZCARD', K.resting(tenant)) > 0 then
    complain(tenant, 'has tasks that rest, and none is active', function()
      advance(tenant, nil)
    end)
  end
end

for i = 3, #ARGV do look(ARGV[i]) end
finish()
return complaints
