-- apply: Applies transitions without follow-up tasks.
-- ARGV 2 the seconds that a tombstone stays, 3 the checkpoint's time to live, 4… one transition
-- each.
-- uses: transitions

return apply_all()
