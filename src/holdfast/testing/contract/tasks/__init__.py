"""The contract of task writes."""
