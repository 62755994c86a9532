"""Plans in SQLite."""
