"""The chain of audits in a file: one for all processes, and it shows what was done to it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.audit import Audit, Break, Chain, first_break
from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By
from holdfast.ports import Kept
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import ASKER, StoreDriver
from tests.support.sqlite.sqlite_files import ask, end, opened, start

ALL = 10_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


def entry(**fields: Any) -> Audit:
    defaults: dict[str, Any] = {
        "task_id": "store", "command": "note", "by": ASKER, "at": 5.0, "before": "", "after": "",
    }  # fmt: skip
    return Audit(**(defaults | fields))


async def note(store: SqliteStore, number: int) -> None:
    for n in range(number):
        await store.admin.audit(entry(command=f"note-{n}", at=float(n)))


async def whole(store: SqliteStore) -> Chain:
    chain = await store.admin.chain(limit=ALL)
    assert first_break(chain.base, chain.links) is None
    assert chain.head == (chain.links[-1].anchor if chain.links else chain.base)
    return chain


async def test_processes_that_write_at_once_write_one_chain(path: Path) -> None:
    async with opened(path) as store:
        processes = [start("note", path, f"p{n}", 40) for n in range(2)]
        await asyncio.gather(*(note(store, 10) for _ in range(4)))
        for process in processes:
            assert await asyncio.to_thread(end, process) == "noted"
        chain = await whole(store)
        who = Counter(link.entry.task_id for link in chain.links)
        assert who == {"store": 40, "worker:p0": 40, "worker:p1": 40}


async def test_the_chain_goes_on_after_a_restart(path: Path) -> None:
    async with opened(path) as store:
        await note(store, 3)
        await store.admin.prune(Kept.AUDIT, older_than_seconds=-ALL, limit=ALL, dry_run=False)
        head = (await whole(store)).head
    async with opened(path) as store:
        assert (await whole(store)).base == head
        await note(store, 2)
        assert [link.seq for link in (await whole(store)).links] == [4, 5]


async def test_a_write_that_fails_leaves_no_hole_in_the_chain(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        task = await driver.submit()
        written = await asyncio.gather(
            store.admin.audit(entry()),
            store.admin.audit(entry(by=By(actor=7))),  # type: ignore[arg-type]
            store.tasks.apply([driver.request(Command.CANCEL, task)]),
            store.admin.audit(entry(at=float("nan"))),
            store.admin.audit(entry()),
            return_exceptions=True,
        )
        failed = [isinstance(answer, SerialisationError) for answer in written]
        assert failed == [False, True, False, True, False]
        assert [link.seq for link in (await whole(store)).links] == [1, 2, 3]


async def test_a_hash_is_that_of_the_entry_as_it_is_read(path: Path) -> None:
    async with opened(path) as store:
        await store.admin.audit(entry(at=5))
        await store.admin.audit(entry(by=By(actor="Zoë", origin="", reason="")))
        first, second = (await whole(store)).links
        assert (first.entry.at, second.entry.by) == (5.0, By(actor="Zoë"))


async def found_broken(path: Path, *, at: int) -> Break:
    async with opened(path) as store:
        chain = await store.admin.chain(limit=ALL)
        broken = first_break(chain.base, chain.links)
        assert broken is not None
        assert broken.seq == at
        return broken


CHANGED = "UPDATE audits SET entry = CAST(replace(entry, 'note-2', 'note-7') AS BLOB) WHERE n = 3"


@pytest.mark.parametrize(
    ("tampering", "at"),
    [
        (CHANGED, 3),
        ("UPDATE audits SET entry = CAST('{' AS BLOB) WHERE n = 3", 4),
        ("DELETE FROM audits WHERE n = 3", 4),
        ("DELETE FROM audits WHERE n = 1", 2),
        ("UPDATE audits SET hash = upper(hash) WHERE n = 3", 3),
    ],
)
async def test_a_file_that_was_changed_by_hand_shows_it(
    path: Path, tampering: str, at: int
) -> None:
    async with opened(path) as store:
        await note(store, 5)
    ask(path, tampering)
    await found_broken(path, at=at)


async def test_an_end_that_was_cut_off_is_told_by_the_head_and_by_the_next_link(
    path: Path,
) -> None:
    async with opened(path) as store:
        await note(store, 5)
    ask(path, "DELETE FROM audits WHERE n > 3")
    async with opened(path) as store:
        chain = await store.admin.chain(limit=ALL)
        assert (chain.links[-1].seq, chain.head.seq) == (3, 5)
        await note(store, 1)
    await found_broken(path, at=6)


async def test_many_audits_of_one_batch_are_linked_in_its_order(path: Path) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        ids = await driver.submit_many(20)
        tasks = [await driver.load(task_id) for task_id in ids]
        await store.tasks.apply([driver.request(Command.CANCEL, task) for task in tasks])
        assert [link.entry.task_id for link in (await whole(store)).links] == ids
