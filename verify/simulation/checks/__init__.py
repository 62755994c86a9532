"""What must hold of each step in a simulated world."""
