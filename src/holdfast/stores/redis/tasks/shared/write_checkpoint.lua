-- The checkpoint of a task: written and dropped with a transition.
-- uses: server
-- keys: ckpt ckpt_meta kept

local function drop_checkpoint(t)
  if t.checkpoints == 'drop' then
    call('DEL', K.ckpt(t.id), K.ckpt_meta(t.id), K.kept(t.id))
  end
end

local function write_checkpoint(t)
  if t.checkpoint then
    call('SET', K.ckpt(t.id), t.checkpoint)
    call('HSET', K.ckpt_meta(t.id), unpack(t.checkpoint_meta))
  end
end
