"""Output of commands: tables, views, progress, JSON."""
