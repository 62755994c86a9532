"""Files of older formats: nothing that is in them is lost on the way to the present one."""

import hashlib
from pathlib import Path

import pytest

from holdfast.domain.audit import START, Anchor, Audit, first_break
from holdfast.domain.errors import StoreError
from holdfast.domain.task.state import Command
from holdfast.ports import Kept, Moves, Store
from holdfast.stores import codec
from holdfast.stores.sqlite.file import connections, migrations
from holdfast.stores.sqlite.statements import SQL
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import ASKER, StoreDriver
from tests.support.sqlite.sqlite_files import ask, opened
from tests.support.sqlite.sqlite_formats import make_older, new_file_of, shape_of

RELEASED = {
    1: "88fe4ccd22d4cfea681bafdc89c65cb5b0faafa15a3fe474e32bc8bcfbddd5d3",
    2: "a772a5fd6c90204d026f516804a72f27a0d08013719143cd9baaf8e711765eeb",
}
OLD_WRITE = "INSERT INTO audits (n, at, body) VALUES (99, 1.0, x'7b')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def cancel(driver: StoreDriver, number: int) -> None:
    for _ in range(number):
        driver.clock.advance(1)
        await driver.ask(Command.CANCEL, await driver.submit(id=f"at-{driver.clock.now()}"))


async def whole(store: Store) -> list[Audit]:
    """What the chain holds, after a look at every link of it."""
    chain = await store.admin.chain(limit=1_000)
    assert first_break(chain.base, chain.links) is None
    assert chain.head == (chain.links[-1].anchor if chain.links else chain.base)
    return [link.entry for link in chain.links]


@pytest.mark.parametrize("version", RELEASED)
def test_a_released_step_is_never_changed(version: int) -> None:
    assert hashlib.sha256(SQL[f"v{version}"].encode()).hexdigest() == RELEASED[version]


@pytest.mark.parametrize("version", RELEASED)
async def test_a_file_made_older_is_as_its_release_made_it(
    path: Path, tmp_path: Path, clock: ManualClock, version: int
) -> None:
    async with opened(path, clock):
        pass
    make_older(path, version)
    new_file_of(tmp_path / "new.db", version)
    assert shape_of(path) == shape_of(tmp_path / "new.db")
    assert ask(path, "PRAGMA user_version") == [(version,)]


@pytest.mark.parametrize("page", [2, 500])
async def test_audits_from_before_the_chain_are_linked(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(migrations, "PAGE", page)
    async with opened(path, clock) as store:
        await cancel(StoreDriver(store, clock), 5)
        before = list(await store.admin.audits(limit=10))
    make_older(path, 2)
    async with opened(path, clock) as store:
        assert (await store.admin.chain(limit=1)).base == Anchor(seq=0, hash=START)
        assert await whole(store) == before[::-1]
        assert list(await store.admin.audits(limit=10)) == before
        await store.admin.audit(before[0])
        assert await whole(store) == [*before[::-1], before[0]]


async def test_the_chain_of_an_older_file_hangs_on_nothing_where_audits_were_cleaned_up(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock) as store:
        await cancel(StoreDriver(store, clock), 5)
        await store.admin.prune(Kept.AUDIT, older_than_seconds=2.5, limit=10, dry_run=False)
    make_older(path, 2)
    async with opened(path, clock) as store:
        chain = await store.admin.chain(limit=10)
        assert (chain.base, chain.head.seq) == (Anchor(seq=2, hash=START), 5)
        assert len(await whole(store)) == 3


async def test_an_older_file_without_audits_gets_an_empty_chain(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock):
        pass
    make_older(path, 2)
    async with opened(path, clock) as store:
        chain = await store.admin.chain(limit=10)
        assert (chain.base, chain.head, chain.links) == (Anchor(), Anchor(), ())
        await cancel(StoreDriver(store, clock), 1)
        assert len(await whole(store)) == 1


async def test_an_old_audit_that_cannot_be_read_is_a_break_and_stops_nobody(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock) as store:
        await cancel(StoreDriver(store, clock), 3)
    make_older(path, 2)
    ask(path, "UPDATE audits SET body = CAST('{' AS BLOB) WHERE n = 2")
    async with opened(path, clock) as store:
        await cancel(StoreDriver(store, clock), 1)
        chain = await store.admin.chain(limit=10)
        assert [link.seq for link in chain.links] == [1, 3, 4]
        broken = first_break(chain.base, chain.links)
        assert broken is not None
        assert broken.seq == 3
        assert first_break(chain.links[1].anchor, chain.links[2:]) is None


async def test_what_was_counted_before_has_neither_queue_nor_type(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.submit(type="a")
        await driver.submit(type="b")
        clock.advance(3)
        for claimed in await driver.claim():
            await driver.complete(claimed.task)
        kinds = {(move.queue, move.type) for move in (await store.views.stats()).moves}
        assert kinds == {("default", "a"), ("default", "b")}
        moves = sums((await store.views.stats()).moves)
    make_older(path, 2)
    async with opened(path, clock) as store:
        found = (await store.views.stats()).moves
        assert {(move.queue, move.type) for move in found} == {("", "")}
        assert sums(found) == moves
        await StoreDriver(store, clock).start(id="new", type="c")
        assert [m.count for m in (await store.views.stats()).moves if m.type == "c"] == [1]


def sums(moves: tuple[Moves, ...]) -> dict[tuple[str, str], tuple[int, float]]:
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for move in moves:
        count, seconds = found.get((move.before, move.after), (0, 0.0))
        key = move.before, move.after
        found[key] = count + move.count, seconds + move.dwell_seconds
    return found


async def test_what_had_a_checkpoint_before_is_counted(path: Path, clock: ManualClock) -> None:
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.complete(await driver.start(tenant="a"))
        await driver.finish_stage(await driver.start(tenant="b"))
    make_older(path, 2)
    async with opened(path, clock) as store:
        stats = await store.views.stats()
        assert (stats.checkpoints, stats.locks, stats.timings) == (1, 1, ())
        assert await store.admin.switches() == []
        assert await store.admin.doctor(fix=False, limit=10) == []


async def test_a_process_of_the_release_before_cannot_write_past_the_chain(
    path: Path, clock: ManualClock
) -> None:
    async with opened(path, clock):
        pass
    with pytest.raises(Exception, match="body"):
        ask(path, OLD_WRITE)


async def test_a_linking_that_fails_leaves_the_file_as_it_was(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, clock) as store:
        await cancel(StoreDriver(store, clock), 2)
    make_older(path, 2)
    shape = shape_of(path)

    def fail(*_: object) -> None:
        raise StoreError("the machine went away")

    with monkeypatch.context() as broken:
        broken.setattr(connections, "link_audits", fail)
        with pytest.raises(StoreError, match="went away"):
            async with opened(path, clock):
                pass
    assert (ask(path, "PRAGMA user_version"), shape_of(path)) == ([(2,)], shape)
    async with opened(path, clock) as store:
        assert len(await whole(store)) == 2


async def test_what_an_older_release_wrote_as_an_audit_can_be_read(
    path: Path, clock: ManualClock
) -> None:
    entry = Audit(
        task_id="t", command="cancel", by=ASKER, at=5.0, before="PENDING", after="CANCELLED"
    )
    new_file_of(path, 2)
    ask(path, "INSERT INTO audits VALUES (1, 5.0, ?)", codec.encode(entry))
    async with opened(path, clock) as store:
        assert await whole(store) == [entry]
