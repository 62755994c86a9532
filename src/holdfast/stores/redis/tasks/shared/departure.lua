-- The way out of the place that a task is in.
-- uses: grave server foreign_keys write_batch tenant_lock
-- keys: back ckpt ckpt_meta kept key_of leases line resting retry saved settled stream task
-- constants: PLACE.later PLACE.leased PLACE.line PLACE.ready PLACE.settled RESTING

local function forget_entry(r)
  if r.entry then
    local of = within(entries, K.stream(r.queue))
    of[#of + 1] = r.entry
    r.entry = nil
  end
end

-- Keeps a checkpoint from expiring: the task may be rolled back and needs what its stages kept.
local function restore_checkpoint(id)
  if call('EXISTS', K.ckpt(id)) == 1 then
    call('PERSIST', K.ckpt(id))
    call('PERSIST', K.ckpt_meta(id))
    call('DEL', K.kept(id))
  elseif call('EXISTS', K.kept(id)) == 1 then
    call('RENAME', K.kept(id), K.ckpt(id))
  end
end

-- Takes a task out of its place, with everything that says so but the record.
local function take_out(r)
  local place = r.place
  count(r.queue, place, -1)
  if place == PLACE.leased then
    count_lock(r, -1)
    take_from(K.leases, r.id)
    forget_entry(r)
    unlock(r)
  elseif place == PLACE.ready then
    forget_entry(r)
    follow('ZREM', K.back(r.queue), r.id)
  elseif place == PLACE.line then
    if r.tenantId then follow('ZREM', K.line(r.tenantId), r.id) end
  elseif place == PLACE.later then
    call('ZREM', K.retry, r.id)
  elseif place == PLACE.settled then
    take_from(K.settled, grave(r))
    call('ZREM', K.saved, r.id)
    call('PERSIST', K.task(r.id))
    restore_checkpoint(r.id)
    if r.key then call('PERSIST', K.key_of(r.tenantId or '', r.key)) end
  end
  if r.tenantId and RESTING[place] and not r.holds then
    follow('ZREM', K.resting(r.tenantId), r.id)
  end
end
