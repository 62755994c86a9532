"""The contract of task reads."""
