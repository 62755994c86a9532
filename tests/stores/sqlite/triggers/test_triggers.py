"""Triggers in a file: older files, few statements, restarts of the machine, unreadable rows."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.domain.errors import InvalidName, SerialisationError
from holdfast.domain.task.transition import Inserted
from holdfast.domain.trigger.trigger import Changed, NoRoom, Overlapping, TriggerStale
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.file import connections
from holdfast.stores.sqlite.transaction import Txn
from holdfast.stores.sqlite.triggers import store as triggers
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, NO_LIMIT, StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import A_MINUTE, TriggerDriver
from tests.support.sqlite.sqlite_files import ask, opened
from tests.support.sqlite.sqlite_formats import make_older

UNREADABLE = "UPDATE triggers SET body = '{' WHERE id = ?"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    async with opened(path, clock) as store:
        yield store


@pytest.fixture
def driver(store: SqliteStore, clock: ManualClock) -> TriggerDriver:
    return hands_on(store, clock)


def hands_on(store: SqliteStore, clock: ManualClock) -> TriggerDriver:
    return TriggerDriver(store, clock, StoreDriver(store, clock))


# -- files of the format before


async def test_a_file_without_triggers_keeps_its_tasks_and_takes_triggers(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock) as store:
        before = StoreDriver(store, clock)
        running = await before.start(tenant="t", key="k")
        waiting = await before.submit(tenant="t")
    make_older(path, 1)
    assert ask(path, "PRAGMA user_version") == [(1,)]
    assert ask(path, "SELECT 1 FROM sqlite_schema WHERE name = 'triggers'") == []
    async with opened(path, clock) as store:
        assert ask(path, "PRAGMA user_version") == [(connections.VERSION,)]
        assert await store.views.load([running.id, waiting.id]) == [running, waiting]
        driver = hands_on(store, clock)
        await driver.save_due("nightly")
        fired = await driver.fire(await driver.take_one())
        assert [type(task) for task in fired.tasks] == [Inserted]
        assert await store.admin.doctor(fix=False, limit=10) == []


# -- set by set


class Statements:
    """Which statements were run on the way to an answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        run, run_each = Txn.run, Txn.run_each

        def seen(txn: Txn, name: str, *values: Any) -> Any:
            self.names.append(name)
            return run(txn, name, *values)

        def seen_each(txn: Txn, name: str, rows: Any) -> None:
            self.names.append(name)
            run_each(txn, name, rows)

        monkeypatch.setattr(Txn, "run", seen)
        monkeypatch.setattr(Txn, "run_each", seen_each)

    @property
    def of_triggers(self) -> list[str]:
        return [name for name in self.names if "trigger" in name]


async def test_a_hundred_are_handed_out_by_one_write(
    driver: TriggerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(120):
        await driver.save_due()
    ran = Statements(monkeypatch)
    assert len((await driver.claim(limit=100)).records) == 100
    assert ran.of_triggers == [
        "triggers_lapsed",
        "triggers_due",
        "triggers_lease",
        "triggers_first",
        "triggers_first_lease",
    ]


async def test_a_hundred_fire_by_one_write(
    driver: TriggerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(100):
        await driver.save_due()
    due = (await driver.claim(limit=100)).records
    ran = Statements(monkeypatch)
    outcomes = await driver.port.apply([driver.decide_fire(t) for t in due], depth_limit=NO_LIMIT)
    assert all(isinstance(outcome, Changed) for outcome in outcomes)
    assert ran.of_triggers == ["triggers_of", "triggers_first", "trigger_put"]
    assert len(ran.names) < 15
    assert len(await driver.tasks()) == 100


async def test_a_change_without_room_leaves_the_others_of_its_batch_alone(
    driver: TriggerDriver,
) -> None:
    for n in range(4):
        await driver.save_due(f"t-{n}")
    due = (await driver.claim()).records
    changes = [driver.decide_fire(trigger) for trigger in due]
    two = driver.submission(due[0], key="a"), driver.submission(due[0], key="b")
    outcomes = await driver.port.apply(
        [changes[1], driver.change(due[0], *two), changes[2], changes[3]], depth_limit=2
    )
    assert [type(outcome) for outcome in outcomes] == [Changed, NoRoom, Changed, NoRoom]
    assert await driver.load(due[0]) == due[0]
    assert await driver.load(due[3]) == due[3]
    assert len(await driver.tasks()) == 2


async def test_a_task_of_the_same_batch_is_one_that_has_not_ended(driver: TriggerDriver) -> None:
    await driver.save_due("a")
    await driver.save_due("b")
    a, b = (await driver.claim()).records
    first = driver.decide_fire(a)
    made = first.submissions[0].task.id
    then = driver.decide_fire(b, unless_unfinished=made)
    outcomes = await driver.port.apply([first, then], depth_limit=NO_LIMIT)
    assert outcomes[1] == Overlapping(made)
    assert await driver.tasks() == [made]


async def test_a_page_is_bounded_and_goes_on_at_its_cursor(
    driver: TriggerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggers, "LOOK_LIMIT", 10)
    for n in range(30):
        await driver.save(f"t-{n:03d}", tenant="t")
    rare = await driver.take(await driver.save("t-999", tenant="t"))
    where: dict[str, Any] = {"tenant": "t", "statuses": (rare.status,)}
    first = await driver.port.find_all(limit=5, **where)
    assert (first.triggers, first.cursor) == ((), "t-009")
    assert await driver.all_ids(limit=5, **where) == [rare.id]


# -- the machine is started anew


async def test_a_lease_of_an_earlier_start_has_lapsed_and_is_no_failed_try(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock, boot_id="b-1") as store:
        driver = hands_on(store, clock)
        await driver.save_due("left")
        assert (await driver.claim()).next_seconds == LEASE_SECONDS
    async with opened(path, clock, boot_id="b-2") as store:
        driver = hands_on(store, clock)
        assert await driver.due() == ["left"]
        found = await driver.take_one("s-2")
        assert (found.owner, found.retry_count) == ("s-2", 0)
        clock.advance(LEASE_SECONDS)
        assert (await driver.take_one("s-3")).retry_count == 1


async def test_a_lease_of_an_earlier_start_is_taken_over_by_name_as_well(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock, boot_id="b-1") as store:
        driver = hands_on(store, clock)
        before = await driver.take(await driver.save("left"))
    async with opened(path, clock, boot_id="b-2") as store:
        driver = hands_on(store, clock)
        found = await driver.take(before, "s-2")
        assert (found.owner, found.retry_count) == ("s-2", 0)


async def test_what_an_earlier_start_left_is_to_be_looked_at_now(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock, boot_id="b-1") as store:
        driver = hands_on(store, clock)
        await driver.save_due()
        await driver.save_due()
        await driver.claim()
    async with opened(path, clock, boot_id="b-2") as store:
        assert (await hands_on(store, clock).claim(limit=1)).next_seconds == 0.0


# -- what cannot be read


async def test_an_unreadable_trigger_does_not_stop_its_neighbours(
    driver: TriggerDriver, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await driver.save_due("bad")
    await driver.save_due("good")
    ask(path, UNREADABLE, "bad")
    assert await driver.due() == ["good"]
    assert "trigger bad is unreadable" in caplog.text
    assert await driver.claim_ids() == ["good"]
    caplog.clear()
    assert await driver.claim_ids() == []
    assert caplog.text == ""  # it is not met each time
    assert await driver.all_ids() == ["good"]
    (found,) = await driver.store.admin.doctor(fix=True, limit=10)
    assert (found.invariant, found.mended) == ("I11", False)


async def test_an_unreadable_lease_that_has_lapsed_is_set_aside(
    driver: TriggerDriver, clock: ManualClock, path: Path
) -> None:
    await driver.take(await driver.save_due("bad"))
    ask(path, UNREADABLE, "bad")
    clock.advance(LEASE_SECONDS)
    assert (await driver.claim()).records == ()
    assert await driver.next_seconds() is None


async def test_an_unreadable_trigger_is_named_and_can_be_replaced(
    driver: TriggerDriver, path: Path
) -> None:
    leased = await driver.take(await driver.save_due("bad"))
    ask(path, UNREADABLE, "bad")
    with pytest.raises(SerialisationError, match="Trigger cannot be read"):
        await driver.port.find("bad")
    assert await driver.port.acquire_lease("bad", "s-2") is None
    assert await driver.apply(driver.decide_fire(leased)) == TriggerStale(None)
    again = await driver.save_due("bad")
    assert again.version == leased.version + 1
    assert await driver.claim_ids() == ["bad"]


async def test_what_could_not_be_read_again_is_not_written(driver: TriggerDriver) -> None:
    trigger = driver.build("odd", target=7)
    with pytest.raises(SerialisationError):
        await driver.port.save(trigger)
    assert await driver.port.find("odd") is None
    leased = await driver.take(await driver.save_due())
    with pytest.raises(SerialisationError):
        await driver.apply(driver.change(leased, reason=7))


async def test_a_payload_is_kept_byte_by_byte(driver: TriggerDriver) -> None:
    payload = b'{ "a" : 1.0, "b": 12345678901234567890,\n "c": "\\u0000" }'
    saved = await driver.save_due("t", payload=Raw(payload))
    assert bytes((await driver.load(saved)).payload) == payload
    assert bytes((await driver.take_one()).payload) == payload
    assert bytes((await driver.load(saved)).payload) == payload


async def test_a_strange_id_is_refused(driver: TriggerDriver) -> None:
    with pytest.raises(InvalidName):
        await driver.port.save(replace(driver.build(), id="a b"))


async def test_a_trigger_set_going_sooner_keeps_its_place_among_others(
    driver: TriggerDriver,
) -> None:
    first = await driver.save("first", due_in=A_MINUTE)
    await driver.save("second", due_in=2 * A_MINUTE)
    await driver.port.save(replace(first, trigger_at=driver.clock.now() + 3 * A_MINUTE))
    assert await driver.due(driver.clock.now() + 9 * A_MINUTE) == ["second", "first"]
