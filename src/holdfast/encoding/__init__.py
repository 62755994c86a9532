"""User values are encoded as JSON, compared with what comes back, and decoded."""
