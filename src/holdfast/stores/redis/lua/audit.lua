-- audit: ARGV 2 the entry, 3 what was refused.

call('RPUSH', K.audit, ARGV[2])
call('HINCRBY', K.refused, ARGV[3], 1)
return 1
