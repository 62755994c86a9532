"""Drivers act on a store as workers, operators, plan drivers and schedulers do, step by step."""
