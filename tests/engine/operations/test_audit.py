"""The chain is verified while others write to it and clean it up."""

from typing import Any

import pytest

from holdfast.domain.audit import Audit, Chain
from holdfast.domain.task.task import By
from holdfast.engine.operations import audit
from holdfast.ports import Kept
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.admin import MemoryAdmin
from holdfast.stores.memory.state import MemoryState
from holdfast.testing import ManualClock


class BusyAdmin(MemoryAdmin):
    """Between two pages something happens."""

    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self.pages = 0
        self.gone = 0  # links that are cleaned up before the second page
        self.come = 0  # and entries that are written

    async def chain(self, **asked: Any) -> Chain:
        self.pages += 1
        if self.pages == 2:
            await self.write(self.come)
            await self.prune(Kept.AUDIT, older_than_seconds=0, limit=self.gone, dry_run=False)
        return await super().chain(**asked)

    async def write(self, count: int) -> None:
        for n in range(count):
            by = By(actor="ada")
            await self.audit(
                Audit(task_id=f"t-{n}", command="pause", by=by, at=0.0, before="A", after="B")
            )


class Busy(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.admin: BusyAdmin = BusyAdmin(self.state)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Busy:
    monkeypatch.setattr(audit, "PAGE", 2)
    return Busy(ManualClock())


@pytest.mark.parametrize("gone", [0, 1, 2, 4, 6, 7, 9])
async def test_what_is_cleaned_up_during_the_walk_is_no_break(store: Busy, gone: int) -> None:
    await store.admin.write(7)
    store.admin.gone, store.admin.come = gone, 2
    verdict = await audit.verify(store)
    assert verdict.broken is None
    assert (verdict.base.seq, verdict.head.seq) == (0, 9)
    assert verdict.links == 2 + 9 - max(2, gone)


async def test_a_head_reads_as_it_was_written(store: Busy) -> None:
    await store.admin.write(3)
    head = (await store.admin.chain(limit=0)).head
    assert audit.anchor_from(audit.format_link(head)) == head
    assert (await audit.verify(store, noted=head)).broken is None
