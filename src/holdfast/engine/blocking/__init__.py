"""The engine for code without an event loop."""
