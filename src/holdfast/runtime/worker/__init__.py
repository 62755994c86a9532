"""The worker: it claims tasks, runs their stages, and keeps their leases."""
