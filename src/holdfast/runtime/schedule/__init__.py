"""The scheduler fires triggers, and writes to the store those that code declares."""
