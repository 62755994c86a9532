"""Sinks write effects once into the user's own database."""
