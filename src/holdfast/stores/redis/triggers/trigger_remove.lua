-- trigger_remove: Deletes a trigger.
-- ARGV 2 the id. Answers 1, or 0 if there is none.
-- uses: server write_batch trigger_places
-- keys: trigger

local id = ARGV[2]
if call('EXISTS', K.trigger(id)) == 0 then return {'answer', 0} end
forget_trigger(id)
written = written + 1
finish()
return answered(1)
