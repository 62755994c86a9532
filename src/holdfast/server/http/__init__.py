"""Requests, connections and their bounds, before a route is called."""
