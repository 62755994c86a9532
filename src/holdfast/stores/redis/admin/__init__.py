"""The audit chain and switches in Redis, with their Lua."""
