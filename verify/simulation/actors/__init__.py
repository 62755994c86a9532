"""The simulated processes and people."""
