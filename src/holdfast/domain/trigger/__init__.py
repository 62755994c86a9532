"""The rules of triggers: record, states, schedules, firing."""
