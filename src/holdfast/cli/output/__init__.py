"""What commands print: tables, views, progress, JSON."""
