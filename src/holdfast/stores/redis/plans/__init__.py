"""Plans in Redis, with their Lua."""
