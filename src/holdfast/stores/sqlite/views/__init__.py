"""Reads of tasks: records, pages and measures."""
