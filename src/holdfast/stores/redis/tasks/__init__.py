"""Writes of tasks: insert, claim, apply, leases and due times, with their Lua."""
