"""Leases and due times: the wall clock may jump, the machine may be started anew."""

from pathlib import Path

import pytest

from holdfast.domain.task.events import LeaseLost
from holdfast.domain.task.placement import Place
from holdfast.stores.sqlite.file import clock as boot
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from tests.support.sqlite.sqlite_files import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.mark.parametrize("by", [7 * 86_400.0, -7 * 86_400.0])
async def test_a_jump_of_the_wall_clock_takes_no_lease(path: Path, by: float) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        task = await driver.start()
        clock.jump(by)
        assert await store.tasks.expire(limit=10, count_crashes=True) == 0
        clock.advance(LEASE_SECONDS)
        assert await store.tasks.expire(limit=10, count_crashes=True) == 1
        assert (await driver.load(task.id)).lapses == 1


@pytest.mark.parametrize("by", [86_400.0, -86_400.0])
async def test_a_jump_of_the_wall_clock_makes_nothing_due(path: Path, by: float) -> None:
    clock = ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.give_back(await driver.start(), delay_seconds=60)
        clock.jump(by)
        due = await store.tasks.promote(limit=10)
        assert (due.count, due.next_seconds) == (0, 60.0)
        clock.advance(60)
        assert (await store.tasks.promote(limit=10)).count == 1


async def test_a_process_that_opens_the_file_after_a_jump_judges_by_the_same_clock(
    path: Path,
) -> None:
    clock = ManualClock()
    async with opened(path, clock, boot_id="b-1") as first:
        await StoreDriver(first, clock).start()
        clock.jump(86_400)
        async with opened(path, clock, boot_id="b-1") as second:
            assert await second.tasks.expire(limit=10, count_crashes=True) == 0
            clock.advance(LEASE_SECONDS)
            assert await second.tasks.expire(limit=10, count_crashes=True) == 1


async def test_a_lease_of_an_earlier_start_of_the_machine_has_lapsed_and_is_not_counted(
    path: Path,
) -> None:
    clock = ManualClock()
    async with opened(path, clock, boot_id="b-1") as store:
        task = await StoreDriver(store, clock).start(tenant="t")
    restarted = ManualClock(now=clock.now() + 5, steady=3.0)
    async with opened(path, restarted, boot_id="b-2") as store:
        driver = StoreDriver(store, restarted)
        assert await store.tasks.expire(limit=10, count_crashes=True) == 1
        again = await driver.load(task.id)
        assert (again.place, again.crashes, again.interrupted) == (Place.READY, 0, True)
        lost = await driver.last_event(again)
        assert isinstance(lost, LeaseLost)
        assert not lost.counted
        assert (await driver.take()).fence > task.fence


async def test_what_was_due_later_is_still_due_then_after_a_restart_of_the_machine(
    path: Path,
) -> None:
    clock = ManualClock()
    async with opened(path, clock, boot_id="b-1") as store:
        driver = StoreDriver(store, clock)
        await driver.give_back(await driver.start(), delay_seconds=60)
    restarted = ManualClock(now=clock.now() + 20, steady=3.0)
    async with opened(path, restarted, boot_id="b-2") as store:
        assert (await store.tasks.promote(limit=10)).next_seconds == pytest.approx(40)


async def test_a_machine_without_a_name_for_its_starts_is_known_by_its_steady_clock(
    path: Path,
) -> None:
    clock = ManualClock(steady=5_000)
    async with opened(path, clock, boot_id=boot.NO_BOOT_ID) as store:
        await StoreDriver(store, clock).start()
    later = ManualClock(now=clock.now() + 1, steady=5_001)
    async with opened(path, later, boot_id=boot.NO_BOOT_ID) as store:
        assert await store.tasks.expire(limit=10, count_crashes=True) == 0
    restarted = ManualClock(now=clock.now() + 9, steady=4)
    async with opened(path, restarted, boot_id=boot.NO_BOOT_ID) as store:
        assert await store.tasks.expire(limit=10, count_crashes=True) == 1


def test_the_start_of_this_machine_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert boot.read_boot_id() == boot.read_boot_id()
    monkeypatch.setattr(boot, "LINUX_BOOT_ID", Path("/nowhere/boot_id"))
    monkeypatch.setattr(boot, "MACOS_BOOT_ID", ("/nowhere/sysctl",))
    assert boot.read_boot_id() == boot.NO_BOOT_ID
