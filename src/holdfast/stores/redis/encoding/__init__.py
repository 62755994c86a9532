"""Records, events and arguments as Redis keeps and receives them."""
