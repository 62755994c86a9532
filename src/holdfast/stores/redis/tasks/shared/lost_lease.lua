-- A lease that is over.
-- uses: lists numbers foreign_keys write_batch tenant_lock record_changes store_moves
-- keys: back leases
-- constants: PLACE.leased PLACE.ready

-- Returns whether a lost lease is a crash: its stage had begun, and from so many crashes on, alone.
local function is_crash(r, crashes, alone_from)
  if not alone_from or not r.progress or r.progress == '' then return false end
  local read_it, noted = pcall(cjson.decode, r.progress)
  if not read_it or type(noted) ~= 'table' then return false end
  local position = (r.lastCompletedStageIndex or '-1') .. '/' .. (r.nextUndo or '-1')
  return noted.begun == position and (crashes < alone_from or noted.alone == true)
end

-- Puts a task whose lease has lapsed before those that were only ready, the newest submit first.
-- Its entry stays pending with the old holder.
local function lose_lease(r, to, event, alone_from)
  if not to[r.status] then return false end
  local crashes = tonumber(r.crashes or '0') or 0
  local counted = is_crash(r, crashes, alone_from)
  local facts = {r.leaseOwner or '', r.fence or '0', counted and '1' or '0'}
  local changes = move(r, to, event, facts)
  if not changes then return false end
  unlock(r)
  take_from(K.leases, r.id)
  if counted then add(changes, 'crashes', whole(crashes + 1)) end
  add(changes, 'lapses', whole((tonumber(r.lapses or '0') or 0) + 1))
  add(changes, 'interrupted', 'true', 'place', PLACE.ready, 'ranBy', r.leaseOwner or '')
  set(r, changes)
  follow('ZADD', K.back(r.queue), '-' .. r.order, r.id)
  count(r.queue, PLACE.leased, -1)
  count(r.queue, PLACE.ready, 1)
  count_lock(r, -1)
  rings.ready = true
  return true
end
