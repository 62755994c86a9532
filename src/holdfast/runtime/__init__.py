"""The runtime runs the tasks, in workers. It knows stores by their port only."""
