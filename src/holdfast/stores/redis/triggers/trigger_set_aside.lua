-- trigger_set_aside: Takes unreadable triggers out of the list of due ones, so that nobody meets
-- them again.
-- ARGV 2… pairs of an id and a version whose record cannot be read; one that was written since
-- then is left where it is.
-- uses: server write_batch trigger_places
-- keys: trigger

for i = 2, #ARGV, 2 do
  local version = try('HGET', K.trigger(ARGV[i]), 'version')
  if version == ARGV[i + 1] then set_trigger_aside(ARGV[i]) end
end
finish()
return answered(1)
