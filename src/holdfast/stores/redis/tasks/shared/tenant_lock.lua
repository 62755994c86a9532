-- A tenant's lock, held while a task of it is leased, and its fence.
-- uses: server foreign_keys write_batch
-- keys: fences lock

local function unlock(r)
  if r.tenantId and follow('GET', K.lock(r.tenantId)) == r.id then
    call('DEL', K.lock(r.tenantId))
  end
end

local function count_lock(r, by)
  if r.tenantId then count(r.queue, 'locks', by) end
end

local function is_superseded(r)
  local fence = tonumber(r.fence)
  if not r.tenantId or not fence or fence == 0 then return false end
  return tonumber(call('HGET', K.fences, r.tenantId) or '0') > fence
end
