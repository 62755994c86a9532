"""Stores keep the tasks. Each store passes `holdfast.testing.contract`."""
