-- audit: Writes an audit entry, and counts a refused command.
-- ARGV 2 the entry, 3 what was refused, or nothing.
-- uses: server
-- keys: audit refused

call('RPUSH', K.audit, ARGV[2])
if ARGV[3] ~= '' then call('HINCRBY', K.refused, ARGV[3], 1) end
return 1
