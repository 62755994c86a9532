"""Audit, switches, doctor, repair and retention in SQLite."""
