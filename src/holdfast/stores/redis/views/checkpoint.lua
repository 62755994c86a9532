-- checkpoint: Reads a task's checkpoint.
-- ARGV 2 the id. Answers nothing, or the task's `checkpoint` and its `stages`.
-- uses: server
-- keys: ckpt stages task

local id = ARGV[2]
local found = call('EXISTS', K.task(id)) == 1 and call('GET', K.ckpt(id))
return found and {'checkpoint', found, 'stages', call('HGETALL', K.stages(id))}
