"""The watched store of a simulated world, and a shadow behind it."""
