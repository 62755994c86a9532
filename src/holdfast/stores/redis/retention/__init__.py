"""Deletion of what has ended, by kind and age, with its Lua."""
