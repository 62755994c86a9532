"""Damage planted in triggers and plans is found and, where the records tell how, mended."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.domain.errors import SerialisationError
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, COMPLETED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from tests.support.sqlite.sqlite_files import ask, opened

LIMIT = 100
WAITS_FOR_NOTHING = """
    UPDATE triggers SET at = NULL, body = json_set(body, '$.trigger_at', NULL) WHERE id = 'waits'
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    """Triggers that wait, are leased and have ended; plans that wait, are driven and settled."""
    async with opened(path, clock) as store:
        triggers, plans = (
            TriggerDriver(store, clock, StoreDriver(store, clock)),
            PlanStoreDriver(store, clock),
        )
        await triggers.settle(await triggers.save("ended", tenant="t"))
        await triggers.take(await triggers.save("leased"))
        await triggers.save_due("waits", tenant="t")
        await plans.create_settled(name="settled")
        await plans.start(name="driven", waves=(1, 4))
        waits = await plans.ready("waits", waves=(1, 4))
        await plans.ask(waits, moves={0: COMPLETED, 1: ADMITTED, 2: ADMITTED})
        assert await store.admin.doctor(fix=False, limit=LIMIT) == []
        yield store


DAMAGE = {
    "a trigger has another status": "UPDATE triggers SET status = 'odd' WHERE id = 'waits'",
    "a trigger has another tenant": "UPDATE triggers SET tenant = 'odd' WHERE id = 'waits'",
    "a trigger has another version": "UPDATE triggers SET version = 77 WHERE id = 'waits'",
    "a trigger is declared": "UPDATE triggers SET declared = 1 WHERE id = 'waits'",
    "a trigger has no time": "UPDATE triggers SET at = NULL WHERE id = 'waits'",
    "a trigger has another time": "UPDATE triggers SET at = at + 9e9 WHERE id = 'waits'",
    "a waiting trigger is leased": "UPDATE triggers SET boot = 1, until = 9e9 WHERE id = 'waits'",
    "a trigger has lost its lease":
        "UPDATE triggers SET boot = NULL, until = NULL WHERE id = 'leased'",
    "a lease is of no start": "UPDATE triggers SET boot = NULL WHERE id = 'leased'",
    "an ended trigger is kept for ever": "UPDATE triggers SET keep_until = NULL",
    "a waiting trigger may be pruned":
        "UPDATE triggers SET keep_until = 1, ended_at = 1 WHERE id = 'waits'",
    "a plan has another status": "UPDATE plans SET status = 'odd' WHERE id = 'waits'",
    "a plan has another version": "UPDATE plans SET version = 77 WHERE id = 'driven'",
    "a settled plan is kept for ever": "UPDATE plans SET keep_until = NULL",
    "a waiting plan may be pruned":
        "UPDATE plans SET keep_until = 1, settled_at = 1 WHERE id = 'waits'",
    "a member is gone":
        "DELETE FROM plan_members WHERE number = 1",
    "a member has another state": "UPDATE plan_members SET state = 'failed' WHERE number = 0",
    "a plan miscounts":
        "UPDATE plans SET body = replace(body, '\"completed\":1', '\"completed\":3')",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
async def test_planted_damage_is_found_and_mended(
    store: SqliteStore, path: Path, damage: str
) -> None:
    ask(path, DAMAGE[damage])
    found = await store.admin.doctor(fix=False, limit=LIMIT)
    assert {finding.invariant for finding in found} == {"I11"}
    assert not any(finding.mended for finding in found)
    assert await store.admin.doctor(fix=False, limit=LIMIT) == found  # a look changes nothing
    assert all(finding.mended for finding in await store.admin.doctor(fix=True, limit=LIMIT))
    assert await store.admin.doctor(fix=False, limit=LIMIT) == []
    due = await store.triggers.claim("s-1")
    assert [trigger.id for trigger in due.triggers] == ["waits"]
    claimed = await store.plans.claim("d-1", limit=9, lease_seconds=9)
    assert [plan.id for plan in claimed.plans] == ["waits"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE triggers SET body = '{' WHERE id = 'waits'",
        "UPDATE triggers SET id = 'another' WHERE id = 'waits'",
        WAITS_FOR_NOTHING,
        "UPDATE plans SET body = '{' WHERE id = 'waits'",
        "UPDATE plans SET id = 'another' WHERE id = 'waits'",
        "UPDATE plan_tasks SET body = '{' WHERE n = 3",
        "DELETE FROM plan_tasks WHERE n = 3",
        "UPDATE plan_members SET state = 'odd' WHERE number = 0",
        "UPDATE plan_members SET number = 99 WHERE number = 0",
    ],
)
async def test_what_cannot_be_derived_is_only_told(
    store: SqliteStore, path: Path, damage: str
) -> None:
    ask(path, damage)
    found = await store.admin.doctor(fix=True, limit=LIMIT)
    assert found
    assert not any(finding.mended for finding in found)
    assert await store.admin.doctor(fix=False, limit=LIMIT) == found


async def test_the_counts_of_a_driven_plan_are_left_to_its_driver(
    store: SqliteStore, path: Path, clock: ManualClock
) -> None:
    ask(path, 'UPDATE plans SET body = replace(body, \'"counts":[{}\', \'"counts":[{"failed":3}\')')
    mended = {
        f.message.split()[1]: f.mended for f in await store.admin.doctor(fix=True, limit=LIMIT)
    }
    assert mended == {"driven": False, "settled": True}
    clock.advance(LEASE_SECONDS)
    assert "driven" in await PlanStoreDriver(store, clock).claim_ids()


async def test_an_unreadable_plan_does_not_stop_its_neighbours(
    store: SqliteStore, path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    plans = PlanStoreDriver(store, clock)
    bad = await plans.ready("bad")
    await plans.ready("good")
    ask(path, "UPDATE plans SET body = '{' WHERE id = 'bad'")
    assert await plans.claim_ids() == ["waits", "good"]
    assert "unreadable" in caplog.text
    caplog.clear()
    clock.advance(LEASE_SECONDS)
    assert "bad" not in await plans.claim_ids()
    assert caplog.text == ""  # it is not met each time
    assert "bad" not in await plans.all_ids()
    found = await store.plans.load(["bad", "good"])
    assert [plan is None for plan in found] == [True, False]
    with pytest.raises(SerialisationError):
        await plans.put(bad)
