"""Where effects arrive: the user's own databases, and the addresses that are told of events."""
