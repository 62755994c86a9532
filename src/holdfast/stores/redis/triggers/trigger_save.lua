-- trigger_save: Writes a trigger, whatever version is there.
-- ARGV 2 the trigger, with the version that it had. Answers the version it has now.
-- uses: lists numbers server write_batch trigger_record
-- keys: trigger

local t = cmsgpack.unpack(ARGV[2])
local found = try('HGET', K.trigger(t.id), 'version')
if type(found) == 'table' and found.err then return {'answer', {'foreign', K.trigger(t.id)}} end
local version = whole((tonumber(found or t.version) or tonumber(t.version)) + 1)
add(t.fields, 'version', version)
write_trigger(t)
finish()
return answered({'saved', version})
