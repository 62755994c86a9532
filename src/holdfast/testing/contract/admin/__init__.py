"""The contract of audit, switches and retention."""
