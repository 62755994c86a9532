"""Prunes explain as many missing links of the audit's chain as they have deleted."""

from holdfast.domain.audit import Audit
from holdfast.domain.task.task import By
from holdfast.engine.operations import audit, retention
from holdfast.engine.operations.audit_gaps import Missing
from holdfast.ports import Kept
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock

DAY = 86_400.0
YEAR = 365 * DAY


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)

    async def write(self, count: int) -> None:
        for number in range(count):
            await self.store.admin.audit(
                Audit(
                    task_id=f"t-{number}",
                    command="pause",
                    by=By(actor="ada"),
                    at=self.clock.now(),
                    before="A",
                    after="B",
                )
            )

    async def clean_up(self, count: int) -> None:
        """Delete the oldest links, and write nothing down."""
        await self.store.admin.prune(Kept.AUDIT, older_than_seconds=0, limit=count, dry_run=False)

    async def prune(self, older_than: str) -> None:
        asked = retention.new_order([Kept.AUDIT], {"older_than": older_than}, 30.0, By(actor="bob"))
        await retention.delete(self.store, self.clock, asked)

    async def missing(self) -> Missing | None:
        found = await audit.verify(self.store, keep_seconds=YEAR, now=self.clock.now())
        assert found.broken is None
        return found.missing


async def test_a_prune_does_not_explain_what_was_deleted_before_it() -> None:
    world = World()
    await world.write(20)
    world.clock.advance(DAY)
    await world.clean_up(15)
    await world.prune("1h")
    missing = await world.missing()
    assert missing is not None
    assert (missing.count, missing.explained) == (20, False)
    assert "account for 5 of 20" in missing.message


async def test_later_prunes_may_delete_the_entries_of_earlier_ones() -> None:
    world = World()
    await world.write(3)
    for count in (3, 4, 5):
        world.clock.advance(DAY)
        await world.prune("1h")
        missing = await world.missing()
        assert missing is not None
        assert (missing.count, missing.explained) == (count, True)


async def test_a_prune_after_the_retention_explains_the_rest() -> None:
    world = World()
    await world.write(4)
    world.clock.advance(YEAR + DAY)
    await world.write(2)
    await world.clean_up(4)
    world.clock.advance(DAY)
    await world.prune("1h")
    missing = await world.missing()
    assert missing is not None
    assert (missing.count, missing.explained) == (6, True)
