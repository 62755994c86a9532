"""What runs the tasks: workers, executor, heartbeat, timers. Knows stores by their port only."""
