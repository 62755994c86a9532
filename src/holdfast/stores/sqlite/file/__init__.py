"""The store's file: how it is opened, guarded, written, read and copied."""
