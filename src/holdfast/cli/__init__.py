"""The command line: `commands/` has a module for each group, and `root.py` lists them all."""
