"""Checks of each step in a simulated world."""
