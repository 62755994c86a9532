"""Damage that was planted is found and, where the records tell how, mended."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.task import decide
from holdfast.domain.task.placement import Place
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command
from holdfast.ports import Filter, Finding
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.sqlite.sqlite_files import ask, opened

LIMIT = 100
UNREADABLE = "UPDATE tasks SET head = '{' WHERE n = ?"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """Two tasks in a queue, one that runs, two in its line, one that rests, one that is settled."""
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        settled = await driver.submit()
        await driver.ask(Command.CANCEL, settled)
        parked = await driver.submit(tenant="p")
        await driver.ask(Command.PAUSE, parked)
        await driver.start(tenant="t", key="k")
        await driver.submit_many(2, tenant="t")
        await driver.submit_many(2)
        assert await store.admin.doctor(fix=False, limit=LIMIT) == []
        yield store


DAMAGE = {
    "a column differs from its record": "UPDATE states SET type = 'odd' WHERE n = 6",
    "a task is in another queue": "UPDATE states SET queue = 'odd' WHERE n = 6",
    "a ready task is in no queue": "DELETE FROM ready WHERE n = 6",
    "a ready task is said to rest": "UPDATE states SET place = 'parked' WHERE n = 6",
    "a leased task is in a queue": "INSERT INTO ready VALUES ('default', 99, 3)",
    "a task is in a queue twice": "INSERT INTO ready VALUES ('default', 99, 6)",
    "a task that is not there is in a queue": "INSERT INTO ready VALUES ('default', 99, 777)",
    "a task that is not there is leased":
        "INSERT INTO leases SELECT 777, version, at, id, owner, fence, boot, until, NULL"
        " FROM leases",
    "a waiting task is in no line": "UPDATE states SET line = NULL WHERE n = 4",
    "a waiting task is leased":
        "INSERT INTO leases SELECT 4, version, at, id, owner, fence, boot, until, NULL FROM leases",
    "a lease is missing": "DELETE FROM leases",
    "a tenant's line is miscounted": "UPDATE tenants SET waiting = 7 WHERE tenant = 't'",
    "a tenant has lost its active task": "UPDATE tenants SET active = NULL WHERE tenant = 't'",
    "a tenant says that a task is active which is gone":
        "UPDATE tenants SET active = 777 WHERE tenant = 'p'",
    "a tenant's row is gone": "DELETE FROM tenants WHERE tenant = 't'",
    "a total is wrong": "UPDATE totals SET count = count + 3",
    "a total is gone": "DELETE FROM totals",
    "a key is gone": "DELETE FROM keys",
    "a number may be given out twice": "UPDATE sequences SET task = 1, fence = 0",
    "a place in a queue may be given out twice": "UPDATE sequences SET ready = 0",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
async def test_planted_damage_is_found_and_mended(
    store: SqliteStore, path: Path, damage: str
) -> None:
    ask(path, DAMAGE[damage])
    found = await store.admin.doctor(fix=False, limit=LIMIT)
    assert found
    assert not any(finding.mended for finding in found)
    assert await store.admin.doctor(fix=False, limit=LIMIT) == found  # a look changes nothing
    for _ in range(3):  # what one step uncovers is for the next
        await store.admin.doctor(fix=True, limit=LIMIT)
    assert await store.admin.doctor(fix=False, limit=LIMIT) == []
    clock = ManualClock()
    assert len(await StoreDriver(store, clock).claim(limit=10)) >= 2


@pytest.mark.parametrize(
    ("change", "n", "invariant"),
    [
        ('{"failures": 9}', 6, "I16"),
        ('{"pause_requested": true}', 2, "I14"),
        ('{"last_completed": 1}', 3, "I7"),
    ],
)
async def test_a_broken_rule_is_only_told(
    store: SqliteStore, path: Path, change: str, n: int, invariant: str
) -> None:
    ask(path, "UPDATE states SET rest = ? WHERE n = ?", change, n)
    await only_told(store, invariant)


@pytest.mark.parametrize(
    ("damage", "invariant"),
    [
        ("UPDATE tasks SET head = '{' WHERE n = 6", "I11"),
        ("UPDATE states SET rest = '{' WHERE n = 2", "I11"),
        ("UPDATE keys SET task_id = 'another'", "I10"),
    ],
)
async def test_what_cannot_be_derived_is_only_told(
    store: SqliteStore, path: Path, damage: str, invariant: str
) -> None:
    ask(path, damage)
    await only_told(store, invariant)


async def only_told(store: SqliteStore, invariant: str) -> None:
    found = await store.admin.doctor(fix=True, limit=LIMIT)
    assert [(finding.invariant, finding.mended) for finding in found] == [(invariant, False)]
    assert await store.admin.doctor(fix=False, limit=LIMIT) == found


async def test_a_status_that_does_not_suit_its_place_is_told(
    store: SqliteStore, path: Path
) -> None:
    ask(path, "UPDATE states SET status = 'PENDING' WHERE n = 2")
    assert "I1" in kinds(await store.admin.doctor(fix=True, limit=LIMIT))
    (left,) = await store.admin.doctor(fix=False, limit=LIMIT)
    assert (left.invariant, left.message) == ("I1", "the task is parked and PENDING")


async def test_two_running_tasks_of_a_tenant_are_told(store: SqliteStore, path: Path) -> None:
    ask(
        path,
        "INSERT INTO leases SELECT 4, version, at, id, owner, fence, boot, until, NULL FROM leases",
    )
    ask(path, "UPDATE states SET line = NULL, place = 'ready' WHERE n = 4")
    assert "I2" in kinds(await store.admin.doctor(fix=True, limit=LIMIT))
    assert kinds(await store.admin.doctor(fix=False, limit=LIMIT)) == {"I2"}


def kinds(findings: object) -> set[str]:
    assert isinstance(findings, list)
    return {finding.invariant for finding in findings if isinstance(finding, Finding)}


async def test_the_doctor_stops_at_its_limit(store: SqliteStore, path: Path) -> None:
    ask(path, "UPDATE states SET type = 'odd'")
    assert len(await store.admin.doctor(fix=False, limit=3)) == 3


async def test_an_unreadable_record_does_not_stop_its_neighbours(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ask(path, UNREADABLE, 6)
    claimed = await StoreDriver(store, ManualClock()).claim(limit=10)
    assert [c.task.order for c in claimed] == [7]
    assert "unreadable" in caplog.text
    page = await store.views.find(Filter(), limit=LIMIT)
    assert len(page.tasks) == 6
    assert (await store.views.load(["task-000006", "task-000007"]))[0] is None
    assert ask(path, "SELECT place FROM states WHERE n = 6") == [(Place.PARKED.value,)]
    assert len(await store.admin.doctor(fix=True, limit=LIMIT)) == 1


async def test_an_unreadable_head_of_a_line_lets_the_next_through(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        first, _, third = [await driver.submit(tenant="t", stages=("only",)) for _ in range(3)]
        ask(path, UNREADABLE, 2)
        await driver.complete(await driver.take())
        assert first.id != third.id
        assert await driver.claim_ids() == [third.id]
        assert (await driver.tenant("t")).waiting == 0


@pytest.mark.parametrize("place", [Place.READY, Place.LEASED, Place.LATER])
async def test_an_unreadable_active_task_does_not_close_its_line(path: Path, place: Place) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        active = await driver.submit(tenant="t", hold=True)
        behind = await driver.submit(tenant="t")
        if place is not Place.READY:
            active = await driver.take()
        if place is Place.LATER:
            active = await driver.fail(active)
        assert active.place is place
        ask(path, UNREADABLE, active.order)
        clock.advance(100)
        await store.tasks.expire(limit=10, count_crashes=True)
        await store.tasks.promote(limit=10)
        assert await driver.claim_ids() == [behind.id]
        view = await driver.tenant("t")
        assert (view.active, view.waiting) == (behind.id, 0)
        assert kinds(await store.admin.doctor(fix=False, limit=LIMIT)) == {"I11"}


async def test_the_doctor_moves_an_unreadable_task_that_rests_out_of_the_way(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        resting = await driver.suspend(await driver.start(tenant="t", hold=True))
        behind = await driver.submit(tenant="t")
        ask(path, UNREADABLE, resting.order)
        assert await driver.claim_ids() == []
        (found,) = await store.admin.doctor(fix=True, limit=LIMIT)
        assert (found.task_id, found.mended) == (resting.id, False)  # a person has to look
        assert await driver.claim_ids() == [behind.id]
        assert await store.admin.doctor(fix=False, limit=LIMIT) == [found]


async def test_the_doctor_leaves_an_unreadable_task_to_the_worker_that_has_it(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        running = await driver.start(tenant="t")
        await driver.submit(tenant="t")
        ask(path, UNREADABLE, running.order)
        await store.admin.doctor(fix=True, limit=LIMIT)
        assert (await driver.tenant("t")).locked_by == running.id
        assert await driver.claim_ids() == []


async def test_no_read_fails_for_an_unreadable_row(store: SqliteStore, path: Path) -> None:
    driver = StoreDriver(store, ManualClock())
    await driver.renew()
    ask(path, "UPDATE tasks SET head = '{'")
    ask(path, "UPDATE audits SET entry = CAST('{' AS BLOB)")
    ask(path, "UPDATE workers SET beat = CAST('{' AS BLOB)")
    assert await store.views.load(["task-000003"]) == [None]
    assert await store.views.peek(["task-000003"]) == [None]
    assert await store.views.detail("task-000003") is None
    assert (await store.views.find(Filter(), limit=LIMIT)).tasks == ()
    assert (await driver.tenant("t")).active is not None
    assert await store.admin.audits(limit=LIMIT) == []
    assert await store.views.workers(live_within_seconds=9) == []
    assert (await store.views.stats()).heads == {}


async def test_a_limit_that_was_lowered_makes_no_task_suspect(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        waits = await driver.fail(await driver.start())
        suspended = await driver.start()
        failure = driver.failure(suspended, retry_seconds=60)
        earlier = msgspec.structs.replace(suspended, failures=3)  # when five were allowed
        await driver.commit(
            decide.stage_failed(earlier, failure, Retry(max=2), checkpoint=None, now=clock.now())
        )
        assert waits.failures < waits.retry_max
        assert (await driver.load(suspended.id)).failures == 4
        assert await store.admin.doctor(fix=False, limit=LIMIT) == []


async def test_a_record_that_kept_the_stages_of_older_code_is_found_and_mended(path: Path) -> None:
    """As files have them from versions that did not write the stages of a deploy."""
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        done = await driver.complete(await driver.start(stages=("a", "b", "c")))
        half_done = await driver.finish_stage(await driver.start(stages=("a", "b", "c")))
        half_done = await driver.suspend(half_done)
        stale = "UPDATE tasks SET head = json_set(head, '$.stages', json(?)) WHERE n = ?"
        ask(path, stale, '["old", "c"]', done.order)
        ask(path, stale, '["b", "x"]', half_done.order)
        found = await store.admin.doctor(fix=False, limit=LIMIT)
        assert [(one.invariant, one.task_id) for one in found] == [
            ("I7", done.id),
            ("I7", half_done.id),
        ]
        assert "names 2 stages, 3 were completed" in found[0].message
        assert "'a' was completed" in found[1].message
        fixed = await store.admin.doctor(fix=True, limit=LIMIT)
        assert all(one.mended for one in fixed)
        assert await store.admin.doctor(fix=False, limit=LIMIT) == []
        assert (await driver.load(done.id)).stages == ("a", "b", "c")
        assert (await driver.load(half_done.id)).stages == ("a", "b", "x")
