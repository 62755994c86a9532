"""What is seen from outside: metrics, alerts, logs, traces."""
