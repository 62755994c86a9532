-- apply_followed: Applies transitions from which tasks follow, which is seldom; these go in with
-- it, in one step.
-- ARGV as apply.lua.
-- uses: submissions follow_ups transitions

follow_ups = {in_way_of = in_way_of, accept_all = accept_all, end_submits = end_submits}
return apply_all()
