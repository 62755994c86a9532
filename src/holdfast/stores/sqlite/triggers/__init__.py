"""Triggers in SQLite."""
