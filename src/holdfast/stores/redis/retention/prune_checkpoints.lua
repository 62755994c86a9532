-- prune_checkpoints: Deletes checkpoints of settled tasks, and keeps the data of their stages.
-- ARGV 2… for each its task, the version that was read, and what the stages kept in it. Answers
-- how many are `gone`, and how many `stay`: one that was written since then.
-- uses: server full_memory
-- keys: ckpt ckpt_meta data kept saved task
-- constants: PLACE.settled

get_through()
local gone, stay = 0, 0
for i = 2, #ARGV, 3 do
  local id, version, data = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local place = try('HGET', K.task(id), 'place')
  if place ~= PLACE.settled then
    call('ZREM', K.saved, id)
  elseif (call('HGET', K.ckpt_meta(id), 'version') or '') ~= version then
    stay = stay + 1
  else
    local is_kept = call('HGET', K.task(id), 'data')
    if data ~= '' and not is_kept then call('SET', K.data(id), data, 'NX') end
    call('DEL', K.ckpt(id), K.ckpt_meta(id), K.kept(id))
    call('ZREM', K.saved, id)
    gone = gone + 1
  end
end
return {'gone', gone, 'stay', stay}
