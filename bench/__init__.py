"""Measurements against real servers. They print figures; what must hold is in tests/."""
