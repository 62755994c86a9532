"""What an operator does: control tasks, hold tenants, pause queues, prune, audit, back up."""
