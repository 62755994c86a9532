"""Commands print tables, views, progress and JSON with these modules."""
