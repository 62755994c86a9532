"""The view from outside: metrics, alerts, logs, traces."""
