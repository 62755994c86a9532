"""The file: opened, guarded, written by one thread, read by several, copied."""
