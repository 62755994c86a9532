"""Bulk actions for code without an event loop."""

from __future__ import annotations

from typing import Any

from holdfast.domain.bulk import BulkCommand
from holdfast.engine.blocking.app import Blocking, Side, blocked
from holdfast.engine.bulk.bulks import BulkHandle, Bulks
from holdfast.ports import Filter


class BlockingBulks(Side[Bulks]):
    """As `Bulks`; its handles block, too."""

    def acting_as(self, actor: str, origin: str = "") -> BlockingBulks:
        return BlockingBulks(self.face, self.part.acting_as(actor, origin))

    def start(self, command: BulkCommand | str, where: Filter, **terms: Any) -> BlockingBulkHandle:
        return self._handle(self.face.call(self.part.start(command, where, **terms)))

    def get(self, bulk_id: str) -> BlockingBulkHandle:
        return self._handle(self.face.call(self.part.get(bulk_id)))

    def _handle(self, handle: BulkHandle) -> BlockingBulkHandle:
        return BlockingBulkHandle(self.face, handle)

    preview = blocked(Bulks.preview)
    find = blocked(Bulks.find)


class BlockingBulkHandle(Side[BulkHandle]):
    def __init__(self, face: Blocking, handle: BulkHandle) -> None:
        super().__init__(face, handle)
        self.id = handle.id

    info = blocked(BulkHandle.info)
    stop = blocked(BulkHandle.stop)
    pause = blocked(BulkHandle.pause)
    resume = blocked(BulkHandle.resume)
    wait = blocked(BulkHandle.wait)
