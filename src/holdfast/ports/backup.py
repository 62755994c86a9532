"""A store that is one file can copy itself."""

from __future__ import annotations

import os
from typing import Protocol

import msgspec


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """A finished backup."""

    path: str
    size_bytes: int


class FileStore(Protocol):
    async def backup(self, target: str | os.PathLike[str]) -> Copy:
        """Copy the store as it is now into a new file, while everything goes on."""
