"""Triggers are fired here, and those that code declares are kept in the store."""
