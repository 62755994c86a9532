"""The laboratory: programs that check the engine from outside. Nothing here is in the wheel."""
