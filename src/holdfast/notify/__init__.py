"""Notifications to the outside: hooks, deliveries and alerts, signed and posted safely."""
