"""Timed services that every worker runs for the store."""
