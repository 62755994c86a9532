"""Notifications to the outside: hooks, deliveries, alerts, signed and safe posts."""
