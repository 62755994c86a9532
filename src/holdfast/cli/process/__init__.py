"""The commands that run processes, `worker` and `serve`, live here."""
