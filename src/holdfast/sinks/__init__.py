"""Sinks write effects into the user's own databases."""
