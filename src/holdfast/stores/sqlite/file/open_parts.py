"""The parts of a store that exist between open and close."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from holdfast.stores.sqlite.file.readers import Readers
from holdfast.stores.sqlite.file.writer import Identity, Writer
from holdfast.stores.sqlite.transaction import StoreClock


class OpenParts(msgspec.Struct, frozen=True):
    """The clock, the writer and the readers of an open store."""

    pid: int
    clock: StoreClock
    writer: Writer
    readers: Readers
    identity: Identity


RequireOpen: TypeAlias = Callable[
    [], OpenParts
]  # raises if the store is not open, or in a forked process
