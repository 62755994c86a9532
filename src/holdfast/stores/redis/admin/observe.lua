-- observe: Adds to the durations of stages.
-- ARGV 2… pairs of a field and by how much it grows.
-- uses: server
-- keys: durations

for i = 2, #ARGV, 2 do call('HINCRBY', K.durations, ARGV[i], ARGV[i + 1]) end
return 1
