"""Holdfast inside other frameworks. Each needs its own library."""
