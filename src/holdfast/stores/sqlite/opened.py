"""What there is between open and close."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from holdfast.stores.sqlite.boot import StoreClock
from holdfast.stores.sqlite.identity import Identity
from holdfast.stores.sqlite.readers import Readers
from holdfast.stores.sqlite.writer import Writer


class Open(msgspec.Struct, frozen=True):
    pid: int
    clock: StoreClock
    writer: Writer
    readers: Readers
    identity: Identity


Door: TypeAlias = Callable[[], Open]  # raises while the store is not open, or in a forked process
