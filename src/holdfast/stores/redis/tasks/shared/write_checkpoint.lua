-- The bodies that a transition writes beside the record: checkpoint, results of stages, the task's
-- result, its data, its payload, and the entry of the audit log.
-- uses: server
-- keys: audit ckpt ckpt_meta data kept payload result stages

local function drop_bodies(t)
  local id = t.id
  if t.checkpoints == 'drop' then call('DEL', K.ckpt(id), K.ckpt_meta(id), K.kept(id)) end
  if t.drop_stages then call('DEL', K.stages(id), K.data(id)) end
end

-- Bodies are deleted as soon as the record has moved on: what is refused before that leaves a task
-- that can go on (DEL itself: see get_through). They go first where new ones take their names.
local function drops_first(t)
  return t.checkpoints == 'drop' and t.checkpoint or t.drop_stages and (t.stage or t.data)
end

local function write_bodies(t)
  local id = t.id
  if t.stage then call('HSET', K.stages(id), t.stage[1], t.stage[2]) end
  if t.checkpoint then
    call('SET', K.ckpt(id), t.checkpoint)
    call('HSET', K.ckpt_meta(id), unpack(t.checkpoint_meta))
  end
  if t.result then call('SET', K.result(id), t.result) end
  if t.data then call('SET', K.data(id), t.data) end
  if t.payload then
    -- The line with the task as it was submitted stays before it.
    local born = string.match(call('GET', K.payload(id)) or '', '^[^\n]*\n') or '\n'
    call('SET', K.payload(id), born .. t.payload)
  end
  if t.audit then call('RPUSH', K.audit, t.audit) end
end
