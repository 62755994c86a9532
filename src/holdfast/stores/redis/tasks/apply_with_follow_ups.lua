-- apply_with_follow_ups: Applies transitions with follow-up tasks, which are inserted in the
-- same step.
-- ARGV as apply.lua.
-- uses: submissions follow_ups transitions

follow_ups = {in_way_of = in_way_of, accept_all = accept_all, end_submits = end_submits}
return apply_all()
