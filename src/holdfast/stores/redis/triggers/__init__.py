"""Triggers in Redis, with their Lua."""
