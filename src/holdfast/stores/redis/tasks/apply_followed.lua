-- apply_followed: apply, where tasks follow from a transition and go in with it, which is seldom.
-- uses: submissions follow_ups transitions

follow_ups = {in_way_of = in_way_of, accept_all = accept_all, end_submits = end_submits}
return apply_all()
