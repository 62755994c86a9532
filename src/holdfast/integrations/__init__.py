"""Holdfast inside other frameworks and services; each integration needs its own library."""
