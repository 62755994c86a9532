"""A part of a Cluster is away, and nobody takes over: the rest goes on."""

from collections.abc import Iterator

import pytest

from holdfast.domain.errors import PartlyUnavailable, StoreError, StoreUnavailable
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, Inserted
from holdfast.runtime.committer import Gather
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from verify.servers import Cluster

LEASE_SECONDS = 600.0  # the answers of all partitions are waited for as long as a share of it
TENANTS = [f"tenant-{n}" for n in range(24)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    lines = ["cluster-require-full-coverage no"]
    with Cluster(replicas=False, lines=lines) as started:
        yield started


async def test_the_others_are_served_while_a_master_is_away(cluster: Cluster) -> None:
    clock = ManualClock()
    store = RedisStore(f"{cluster.url}?partitions=6", clock, time=clock.times)
    await store.open()
    try:
        driver = StoreDriver(store, clock)
        running = [await driver.start(tenant=tenant) for tenant in TENANTS[:12]]
        waiting = [driver.submission(tenant=tenant) for tenant in TENANTS[12:]]
        gone = cluster.master_of("{executor-00}:meta")
        gone.kill()
        away = {task.id for task in running if is_away(cluster, task)}
        assert 0 < len(away) < len(running)

        with pytest.raises(PartlyUnavailable) as renewed:
            await driver.renew(*running, lease_seconds=LEASE_SECONDS)
        for task, kept in zip(running, renewed.value.answers, strict=True):
            assert isinstance(kept, StoreUnavailable) if task.id in away else kept is True

        healthy = [task for task in running if task.id not in away]
        kept_on = await driver.renew(*healthy, lease_seconds=LEASE_SECONDS)
        assert kept_on == [True] * len(healthy)  # partition 00 is away

        with pytest.raises(PartlyUnavailable) as inserted:
            await driver.insert(*waiting)
        got = [a for a in inserted.value.answers if isinstance(a, Inserted)]
        assert 0 < len(got) < len(waiting)

        assert set(await driver.claim_ids()) == {one.task_id for one in got}

        with pytest.raises(PartlyUnavailable):
            await store.tasks.expire(limit=10, count_crashes=True)

        await each_fares_for_itself(driver, running, away)
        gone.restart()
        cluster.wait_ok()
    finally:
        await store.close()


async def each_fares_for_itself(driver: StoreDriver, running: list[Task], away: set[str]) -> None:
    """As a worker's commits do, which are sent together."""
    send = Gather(driver.store.tasks.apply)
    for task in running:
        try:
            outcome = await send(driver.request(Command.PAUSE, task))
        except StoreError:
            assert task.id in away
        else:
            assert isinstance(outcome, Applied)
            assert task.id not in away


def is_away(cluster: Cluster, task: Task) -> bool:
    number = task.id.rpartition(".p")[2]
    return not cluster.master_of(f"{{executor-{number}}}:meta").alive
