"""Reads that many callers share: live feeds, shared reads, large views."""
