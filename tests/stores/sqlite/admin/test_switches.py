"""A switch that one process throws holds in all of them, and costs nothing while none is thrown."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.audit import Audit
from holdfast.domain.task.transition import Inserted, IntakeClosed
from holdfast.ports import Switch, Topic
from holdfast.stores import codec
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.transaction import Txn
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import ASKER, StoreDriver
from tests.support.sqlite.sqlite_files import ask, end, opened, start

FOREVER = 240.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


async def elsewhere(*arguments: object) -> str:
    """Done by a process of its own; what it said."""
    return await asyncio.to_thread(lambda: end(start(*map(str, arguments))))


async def throw(store: SqliteStore, switch: Switch, *, on: bool, name: str = "default") -> bool:
    audit = Audit(task_id=f"queue:{name}", command="throw", by=ASKER, at=5.0, before="", after="")
    return await store.admin.set_switch(switch, name, on=on, audit=audit)


async def test_a_paused_intake_holds_in_every_process(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.submit()
        assert await elsewhere("throw", path, "intake", "default", "off") == "True"
        assert await driver.insert(driver.submission()) == [IntakeClosed("default")]
        assert await elsewhere("throw", path, "intake", "default", "off") == "False"
        assert await elsewhere("throw", path, "intake", "default", "on") == "True"
        last = driver.submission()
        assert await driver.insert(last) == [Inserted(last.task.id)]
        assert len((await store.admin.chain(limit=10)).links) == 3


async def test_paused_claiming_holds_in_every_process_and_its_end_wakes_them(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        task = await driver.submit()
        await elsewhere("throw", path, "claiming", "default", "off")
        ticket = store.ticket(Topic.READY)
        assert await driver.claim_ids() == []
        waiting = asyncio.ensure_future(store.wait(Topic.READY, ticket, timeout=FOREVER))
        await asyncio.sleep(0)
        assert not waiting.done()
        await elsewhere("throw", path, "claiming", "default", "on")
        await asyncio.wait_for(waiting, FOREVER / 2)
        assert await driver.claim_ids() == [task.id]


async def test_switches_hold_after_a_restart(path: Path) -> None:
    async with opened(path) as store:
        for switch in Switch:
            await throw(store, switch, on=False)
    async with opened(path) as store:
        driver = StoreDriver(store, ManualClock())
        assert {thrown.switch for thrown in await store.admin.switches()} == set(Switch)
        assert await driver.insert(driver.submission()) == [IntakeClosed("default")]


class Counted:
    """The statements that transactions run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        run = Txn.run

        def counted(txn: Txn, name: str, *values: Any) -> Any:
            self.names.append(name)
            return run(txn, name, *values)

        monkeypatch.setattr(Txn, "run", counted)


async def test_switches_are_read_only_while_one_is_thrown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver, counted = StoreDriver(store, clock), Counted(monkeypatch)
        await driver.submit_many(3)
        await driver.claim(limit=1)
        assert "switches_of" not in counted.names
        await throw(store, Switch.CLAIMING, on=False)
        counted.names.clear()
        await driver.submit_many(3)
        assert await driver.claim(limit=1) == []
        assert counted.names.count("switches_of") == 2  # once for each group, not for each task


async def test_a_throw_holds_for_what_is_written_with_it(path: Path) -> None:
    """They may be gathered into one transaction."""
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        submission = driver.submission()
        gathered = await asyncio.gather(
            driver.insert(driver.submission()),
            throw(store, Switch.INTAKE, on=False),
            driver.insert(submission),
            throw(store, Switch.INTAKE, on=True),
            driver.insert(submission),
        )
        assert [gathered[2], gathered[4]] == [
            [IntakeClosed("default")],
            [Inserted(submission.task.id)],
        ]
    assert ask(path, "SELECT count(*) FROM switches") == [(0,)]


async def test_a_claim_decodes_no_holds_however_many_there_are(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        for number in range(5):
            await throw(store, Switch.HOLD, on=False, name=f"t-{number}")
        await driver.submit(tenant="t-3")
        free = [await driver.submit(tenant="u"), await driver.submit()]
        decoded = list[bytes]()
        monkeypatch.setattr(codec, "decode_thrown", decoded.append)
        assert await driver.claim_ids(limit=5) == [task.id for task in free]
        assert decoded == []


@pytest.mark.parametrize("body", ["", "{", "[]", '"x"', "{}", '{"until": "x"}', '{"until": null}'])
async def test_a_hold_that_cannot_be_read_has_no_end(path: Path, body: str) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.submit(tenant="t")
        ask(path, "INSERT INTO meta VALUES ('hold:tenant:t', ?)", body)
        assert await driver.claim_ids() == []
        free = await driver.submit(tenant="u")
        assert await driver.claim_ids() == [free.id]
