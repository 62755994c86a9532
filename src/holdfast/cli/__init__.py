"""The command line. One file per noun; `root.py` puts them together."""
