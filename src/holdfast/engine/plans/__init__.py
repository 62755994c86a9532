"""Plans: created, controlled and held by a handle."""
