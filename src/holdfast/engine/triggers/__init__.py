"""Triggers: declared in code or made by a call, and the commands to them."""
