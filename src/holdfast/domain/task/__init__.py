"""The rules of tasks: record, state table, decisions, checkpoints, events."""
