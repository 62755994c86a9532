"""Writes of tasks: insert, claim, apply, leases and due times."""
