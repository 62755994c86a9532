-- The end of a settled record, and of the key that it was submitted with.
-- uses: grave numbers server foreign_keys time write_batch
-- keys: by_day by_error by_plan by_status by_tenant ckpt ckpt_meta damaged data events fences
--   kept key_of payload result saved settled stages task tombstone tombstones
-- constants: PLACE.settled

local function free_key(tenant, key, id)
  local name = K.key_of(tenant, key)
  local owner = follow('GET', name)
  if owner and string.sub(owner, 1, #id + 1) == id .. ' ' then call('DEL', name) end
end

local function unindex(id, tenant, plan, status, fingerprint, day)
  take_from(K.by_status(status), id)
  follow('SREM', K.by_day(day), id)
  if plan ~= '' then take_from(K.by_plan(plan), id) end
  if fingerprint ~= '' then take_from(K.by_error(fingerprint), id) end
  if tenant ~= '' then
    follow('ZREM', K.by_tenant(tenant), id)
    if call('EXISTS', K.by_tenant(tenant)) == 0 then call('HDEL', K.fences, tenant) end
  end
end

local function delete_bodies(id)
  call('DEL', K.payload(id), K.result(id), K.data(id), K.stages(id), K.events(id), K.ckpt(id),
    K.ckpt_meta(id), K.kept(id), K.damaged(id), K.damaged(id .. ':events'))
end

-- Deletes a settled record and all that belongs to it; a tombstone stays while its key answers.
local function bury(r, request, settled_at, tombstone_seconds)
  local id, till = r.id, settled_at + tombstone_seconds
  count(r.queue, PLACE.settled, -1)
  take_from(K.settled, grave(r))
  call('ZREM', K.saved, id)
  unindex(id, r.tenantId or '', r.planId or '', r.status, r.error or '',
    string.sub(r.createdAt or '', 1, 10))
  if till > wall then
    local name = K.tombstone(id)
    call('RENAME', K.task(id), name)
    call('HSET', name, 'request', request, 'until', decimal(till))
    local result = call('GET', K.result(id))
    if result then call('HSET', name, 'result', result) end
    call('EXPIRE', name, whole(math.ceil(till - wall)))
    call('ZADD', K.tombstones, decimal(till), id)
    if r.key then
      call('EXPIRE', K.key_of(r.tenantId or '', r.key), whole(math.ceil(till - wall)))
    end
  else
    call('DEL', K.task(id))
    if r.key then free_key(r.tenantId or '', r.key, id) end
  end
  delete_bodies(id)
end
