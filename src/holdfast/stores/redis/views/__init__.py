"""Reads of tasks: records, pages, counts, with their Lua."""
