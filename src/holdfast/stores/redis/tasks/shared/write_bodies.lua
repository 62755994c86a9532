-- The bodies that a transition writes beside the record: results of stages, the checkpoint, the
-- task's result, its data, its payload, and the entry of the audit log.
-- uses: server write_checkpoint
-- keys: audit data payload result stages

local function drop_bodies(t)
  drop_checkpoint(t)
  if t.drop_stages then call('DEL', K.stages(t.id), K.data(t.id)) end
end

-- Bodies are deleted as soon as the record has moved on: a transition that is refused before that
-- leaves a task that can go on (DEL itself: see get_through). They are deleted first if the
-- transition writes new ones under their names.
local function drops_first(t)
  return t.checkpoints == 'drop' and t.checkpoint or t.drop_stages and (t.stage or t.data)
end

local function write_bodies(t)
  local id = t.id
  if t.stage then call('HSET', K.stages(id), t.stage[1], t.stage[2]) end
  write_checkpoint(t)
  if t.result then call('SET', K.result(id), t.result) end
  if t.data then call('SET', K.data(id), t.data) end
  if t.payload then
    -- The line before the payload, with the task as it was submitted, stays.
    local born = string.match(call('GET', K.payload(id)) or '', '^[^\n]*\n') or '\n'
    call('SET', K.payload(id), born .. t.payload)
  end
  if t.audit then call('RPUSH', K.audit, t.audit) end
end
