"""Bulk actions: one command for all tasks that match a filter."""
