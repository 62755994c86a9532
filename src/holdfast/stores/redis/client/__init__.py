"""Connections to the servers: addresses, topology, scripts, faults, start-up checks."""
