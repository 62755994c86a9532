"""Each module holds one group of commands."""
