"""Plans: their creation, their commands and their handles."""
