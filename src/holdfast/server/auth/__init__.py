"""Tokens, roles, and what a caller may see."""
