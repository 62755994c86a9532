"""The rules of plans: record, states, waves, members, roll-out."""
