"""Holdfast behind the protocol of the peers' adapters."""
