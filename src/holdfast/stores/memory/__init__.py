"""The reference store, in memory."""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
