"""A task is taken back beside one that an earlier version had taken back."""

from pathlib import Path

from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, StoreDriver
from tests.support.sqlite.sqlite_files import ask, opened


async def test_a_number_of_an_earlier_version_is_in_the_way_of_no_task(tmp_path: Path) -> None:
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        first = await driver.start()
        second = await driver.submit()
        ask(path, "UPDATE ready SET number = -1 WHERE n = 2")  # it counted how many were lost
        ask(path, "UPDATE states SET ready = -1 WHERE n = 2")
        clock.advance(LEASE_SECONDS + 1)
        assert await store.tasks.expire(limit=10, count_crashes=True) == 1
        assert await driver.claim_ids("w-2") == [first.id, second.id]
