"""Switches and measures over many partitions of a Cluster, and on a single server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast.domain.audit import Audit
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Inserted, IntakeClosed
from holdfast.ports import BUCKETS, Kept, Moves, Switch, Timings, Topic
from holdfast.testing.contract.drivers.store_driver import (
    ASKER,
    LEASE_SECONDS,
    StoreDriver,
    beat,
    patience,
)
from tests.support.redis.redis_stores import Bench, benched, on_partitions, partitioned_cluster
from verify.servers import Cluster, RedisServer

PARTITIONS = 8
TENANTS = [f"tenant-{n}" for n in range(24)]
SPANS = len(BUCKETS) + 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with partitioned_cluster() as started:
        yield started


@pytest.fixture
async def driver(cluster: Cluster, redis_namespace: str) -> AsyncIterator[StoreDriver]:
    async with on_partitions(cluster, redis_namespace, PARTITIONS) as (store, clock):
        yield StoreDriver(store, clock)


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


async def throw(
    driver: StoreDriver, switch: Switch, name: str = "default", *, on: bool = False
) -> bool:
    entry = Audit(
        task_id=f"queue:{name}",
        command=switch,
        by=ASKER,
        at=driver.clock.now(),
        before="",
        after="",
    )
    return await driver.store.admin.set_switch(switch, name, on=on, audit=entry)


async def thrown(driver: StoreDriver) -> list[tuple[Switch, str]]:
    return [(one.switch, one.name) for one in await driver.store.admin.switches()]


async def one_of_each(driver: StoreDriver) -> list[Task]:
    return [await driver.submit(tenant=tenant) for tenant in TENANTS]


def having(cluster: Cluster, namespace: str, key: str) -> list[int]:
    """The numbers of the partitions that have it."""
    found = []
    for number in range(PARTITIONS):
        name = f"{{{namespace}-{number:02}}}:{key}"
        with cluster.master_of(name).client() as client:
            found += [number] if client.exists(name) else []
    return found


# -- in every partition


async def test_the_intake_is_off_in_every_partition(driver: StoreDriver) -> None:
    assert await throw(driver, Switch.INTAKE)
    batch = [driver.submission(tenant=tenant) for tenant in TENANTS]
    assert await driver.insert(*batch) == [IntakeClosed("default")] * len(TENANTS)
    assert await throw(driver, Switch.INTAKE, on=True)
    assert await driver.insert(*batch) == [Inserted(one.task.id) for one in batch]


async def test_claiming_is_off_in_every_partition_and_on_again_is_heard(
    driver: StoreDriver,
) -> None:
    tasks = await one_of_each(driver)
    await throw(driver, Switch.CLAIMING)
    for seconds in (0.0, 1.0, 6.0):  # by what is counted, and by asking all
        driver.clock.advance(seconds)
        assert await driver.claim_ids() == []
    ticket = driver.store.ticket(Topic.READY)
    waiter = asyncio.create_task(driver.store.wait(Topic.READY, ticket, timeout=3600.0))
    await throw(driver, Switch.CLAIMING, on=True)
    async with patience():
        await waiter
    assert set(await driver.claim_ids()) == {task.id for task in tasks}


async def test_a_throw_is_written_down_once_and_a_switch_is_shown_once(driver: StoreDriver) -> None:
    assert await throw(driver, Switch.INTAKE)
    assert not await throw(driver, Switch.INTAKE)
    assert await thrown(driver) == [(Switch.INTAKE, "default")]
    assert len(await driver.store.admin.audits(limit=100)) == 2


async def test_a_drain_is_kept_in_one_partition_only(
    driver: StoreDriver, cluster: Cluster, redis_namespace: str
) -> None:
    await throw(driver, Switch.DRAIN, "w-1")
    assert having(cluster, redis_namespace, "switches") == [0]
    await driver.store.tasks.leave("w-1")
    assert having(cluster, redis_namespace, "switches") == []
    await throw(driver, Switch.INTAKE)
    assert having(cluster, redis_namespace, "switches") == [*range(PARTITIONS)]


async def test_a_drain_that_came_after_its_worker_had_left_is_cleaned_up(
    driver: StoreDriver,
) -> None:
    await driver.store.tasks.renew(beat("w-2"), [], lease_seconds=20 * LEASE_SECONDS)
    for worker in ("w-1", "w-2"):
        await throw(driver, Switch.DRAIN, worker)
    pruned = await driver.store.admin.prune(
        Kept.WORKERS, older_than_seconds=60, limit=9, dry_run=False
    )
    assert pruned == 0
    assert await thrown(driver) == [(Switch.DRAIN, "w-2")]


async def test_a_throw_that_failed_half_way_is_finished_by_a_repeat(
    driver: StoreDriver, cluster: Cluster, redis_namespace: str
) -> None:
    await one_of_each(driver)
    first = cluster.master_of(f"{{{redis_namespace}-00}}:meta")
    masters = [cluster.master_of(f"{{{redis_namespace}-{n:02}}}:meta") for n in range(PARTITIONS)]
    gone = next(master for master in masters if master is not first)
    gone.kill()
    with pytest.raises(StoreUnavailable):
        await throw(driver, Switch.CLAIMING)
    assert await thrown(driver) == [(Switch.CLAIMING, "default")]  # somewhere it is
    gone.restart()
    cluster.wait_ok()
    assert await driver.claim_ids()  # of those that did not hear of it
    assert await throw(driver, Switch.CLAIMING)
    assert not await throw(driver, Switch.CLAIMING)
    assert await driver.claim_ids() == []
    assert having(cluster, redis_namespace, "switches") == [*range(PARTITIONS)]


# -- what is counted


async def test_groups_of_errors_are_those_of_all_partitions(driver: StoreDriver) -> None:
    suspended = dict[str, list[str]](KeyError=[], ValueError=[])
    for number, tenant in enumerate(TENANTS):
        error = "KeyError" if number % 3 else "ValueError"
        task = await driver.suspend(await driver.start(tenant=tenant), error=error)
        suspended[error].append(task.id)
    groups = await driver.store.views.error_groups(limit=9)
    told = [(group.newest.failure, group.count, group.newest.id) for group in groups]
    assert [(failure and failure.error, *rest) for failure, *rest in told] == [
        ("KeyError", 16, max(suspended["KeyError"])),
        ("ValueError", 8, max(suspended["ValueError"])),
    ]
    assert [group.count for group in await driver.store.views.error_groups(limit=1)] == [16]


async def test_locks_checkpoints_moves_and_times_are_those_of_all_partitions(
    driver: StoreDriver,
) -> None:
    for tenant in TENANTS:
        await driver.finish_stage(await driver.start(tenant=tenant))
    took = Timings(
        type="test.work", stage="one", outcome="done", counts=(1,) * SPANS, total_seconds=0.25
    )
    await driver.store.admin.observe([took])
    stats = await driver.store.views.stats()
    assert (stats.locks, stats.checkpoints) == (len(TENANTS), len(TENANTS))
    (move,) = stats.moves
    assert (move.queue, move.type, move.count) == ("default", "test.work", len(TENANTS))
    assert stats.timings == (took,)


async def test_moves_from_before_queue_and_type_were_counted_are_told(bench: Bench) -> None:
    bench.ask("HSET", "moves", "PENDING RUNNING", 5, "PENDING RUNNING us", 2_500_000)
    await bench.driver.start(type="us")  # no name is mistaken for the unit
    started: dict[str, Any] = {"before": Status.PENDING, "after": Status.RUNNING}
    found = sorted((await bench.store.views.stats()).moves, key=lambda move: move.queue)
    assert found == [
        Moves(count=5, dwell_seconds=2.5, **started),
        Moves(count=1, dwell_seconds=0.0, queue="default", type="us", **started),
    ]


async def test_a_task_that_comes_back_before_it_ever_ran_is_counted_by_its_type(
    bench: Bench,
) -> None:
    await bench.driver.submit(type="mail.send")
    bench.ask("XGROUP CREATE", "queue:tasks", "workers", 0)
    bench.read("queue:tasks", 1)
    assert await bench.store.admin.doctor(fix=True, limit=9)
    await bench.driver.take()
    (move,) = (await bench.store.views.stats()).moves
    assert (move.queue, move.type, move.count) == ("default", "mail.send", 1)


async def test_what_an_older_version_did_not_count_is_counted_by_a_reconciliation(
    bench: Bench,
) -> None:
    driver = bench.driver
    await driver.suspend(await driver.finish_stage(await driver.start(tenant="a")))
    await driver.start(tenant="b")
    error = bench.ask("ZRANGE", "errors", 0, 0)[0]
    for name in ("errors", f"index:suspended:{error}"):
        bench.ask("DEL", name)
    bench.ask("HDEL", "counts", "default locks", "default checkpoints")
    assert await bench.store.admin.doctor(fix=True, limit=100, every_seconds=60)
    stats = await bench.store.views.stats()
    assert (stats.locks, stats.checkpoints) == (1, 1)
    assert [group.count for group in await bench.store.views.error_groups(limit=9)] == [1]


async def test_an_error_whose_newest_record_is_unreadable_shows_the_next(bench: Bench) -> None:
    tasks = [await bench.driver.suspend(await bench.driver.start()) for _ in range(2)]
    bench.ask("HDEL", f"task:{tasks[1].id}", "version")
    (group,) = await bench.store.views.error_groups(limit=9)
    assert (group.count, group.newest.id) == (2, tasks[0].id)
