"""Holdfast and the ceiling behind the protocol of the peers' adapters."""
