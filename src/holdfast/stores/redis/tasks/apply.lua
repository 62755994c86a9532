-- apply: ARGV 2 the seconds that a tombstone stays, 3 the checkpoint's time to live, 4… one
-- transition each, from which no task follows.
-- uses: transitions

return apply_all()
