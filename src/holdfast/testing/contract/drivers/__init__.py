"""Drivers play workers, operators, plan drivers and schedulers on a store, step by step."""
