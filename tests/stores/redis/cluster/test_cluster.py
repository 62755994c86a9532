"""A Cluster: the contract on one partition, and what many partitions add to it."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from redis.crc import key_slot

from holdfast.domain.audit import first_break
from holdfast.domain.errors import InvalidInput, StoreForeign, StoreUnavailable
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Conflict, Existing
from holdfast.ports import Clock, Filter, Kept, Store
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract import DurableStoreContract
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.failover import Load, cut_off, eventually
from verify.servers import Cluster, RedisServer

PARTITIONS = 8
TENANTS = [f"tenant-{n}" for n in range(40)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three masters with a replica each; keep to your ``redis_namespace``."""
    with Cluster(appendonly=True) as started:
        yield started


class TestRedisOnCluster(DurableStoreContract):
    url: str
    namespace: str

    @pytest.fixture(autouse=True)
    def a_namespace_of_its_own(self, cluster: Cluster, redis_namespace: str) -> None:
        self.url, self.namespace = f"{cluster.url}?partitions=1", redis_namespace

    async def open(self, clock: Clock) -> Store:
        assert isinstance(clock, ManualClock)
        return await opened(self.url, clock, self.namespace)


async def opened(url: str, clock: ManualClock, namespace: str) -> RedisStore:
    store = RedisStore(url, clock, namespace, time=clock.times)
    await store.open()
    return store


@pytest.fixture
async def driver(cluster: Cluster, redis_namespace: str) -> AsyncIterator[StoreDriver]:
    """On many partitions; in the end everything agrees."""
    clock = ManualClock()
    store = await opened(f"{cluster.url}?partitions={PARTITIONS}", clock, redis_namespace)
    yield StoreDriver(store, clock)
    assert not await store.admin.doctor(fix=False, limit=100)
    await store.close()


def partition_of(task_id: str) -> str:
    return task_id.rpartition(".p")[2]


async def one_of_each(driver: StoreDriver, **fields: Any) -> list[Task]:
    """A task of each tenant, oldest first."""
    return [await driver.submit(tenant=tenant, **fields) for tenant in TENANTS]


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


async def test_tasks_of_many_tenants_are_spread_and_found_by_their_ids_alone(
    driver: StoreDriver,
) -> None:
    tasks = await one_of_each(driver)
    assert {partition_of(task.id) for task in tasks} == {f"{n:02}" for n in range(PARTITIONS)}
    shuffled = ids(tasks)[::-1]
    assert [task and task.id for task in await driver.store.views.load(shuffled)] == shuffled
    assert [peek and peek.task_id for peek in await driver.store.views.peek(shuffled)] == shuffled
    for task in tasks:
        assert (await driver.detail(task)).task == task
        assert (await driver.ask(Command.PAUSE, task)).status is Status.PAUSED


@pytest.mark.parametrize("task_id", ["nobody", "task-1.p08", "task-1.p99", "task-1.pXY", ".p"])
async def test_an_id_that_no_task_can_have_is_not_found(driver: StoreDriver, task_id: str) -> None:
    assert list(await driver.store.views.load([task_id])) == [None]
    assert list(await driver.store.views.peek([task_id])) == [None]
    assert await driver.store.views.detail(task_id) is None
    assert await driver.store.views.checkpoint(task_id) is None


@pytest.mark.parametrize("of", [{"tenant": "t"}, {"key": "k"}, {}])
async def test_an_id_that_is_not_from_home_is_refused(
    driver: StoreDriver, of: dict[str, Any]
) -> None:
    right = driver.submission(**of)
    own, _, number = right.task.id.rpartition(".p")
    for wrong in (own, f"{own}.p{(int(number) + 1) % PARTITIONS:02}", f"{own}.p{int(number)}"):
        task = msgspec.structs.replace(right.task, id=wrong)
        with pytest.raises(InvalidInput, match=r"partitioned_id\(\)"):
            await driver.insert(msgspec.structs.replace(right, task=task))
    assert not (await driver.store.views.find(Filter(), limit=10)).tasks


async def test_one_worker_serves_all_partitions(driver: StoreDriver) -> None:
    waiting = set(ids(await one_of_each(driver)))
    first = await driver.claim(limit=10)
    assert len(first) == 10
    rest = await driver.claim(limit=100)
    claimed = [one.task for one in (*first, *rest)]
    assert {task.id for task in claimed} == waiting
    assert await driver.renew(*claimed) == [True] * len(TENANTS)
    for task in claimed:
        assert (await driver.complete(task)).status is Status.COMPLETED
    assert await driver.claim() == []


async def test_a_claim_that_is_repeated_hands_out_the_same_of_every_partition(
    driver: StoreDriver,
) -> None:
    await one_of_each(driver)
    first = await driver.claim_ids(request="r", limit=25)
    again = await driver.claim_ids(request="r", limit=25)
    assert sorted(again) == sorted(first)
    assert len(set(first)) == 25
    assert len(await driver.claim_ids(request="s")) == len(TENANTS) - 25


async def test_the_first_queue_is_emptied_everywhere_before_the_next(driver: StoreDriver) -> None:
    later = ids(await one_of_each(driver, queue="later"))
    urgent = [(await driver.submit(queue="urgent", key=f"k-{n}")).id for n in range(20)]
    queues = ("urgent", "later")
    order = []
    while some := await driver.claim_ids(queues=queues, limit=7):
        order += some
    assert set(order[:20]) == set(urgent)
    assert set(order[20:]) == set(later)


async def test_lost_and_due_tasks_come_back_in_every_partition(driver: StoreDriver) -> None:
    await one_of_each(driver)
    claimed = [one.task for one in await driver.claim()]
    for task in claimed[:20]:
        await driver.fail(task, retry_seconds=60)
    driver.clock.advance(31)
    assert await driver.store.tasks.expire(limit=100, count_crashes=True) == 20
    due = await driver.store.tasks.promote(limit=100)
    assert (due.count, due.next_seconds) == (0, 29.0)
    driver.clock.advance(29)
    assert (await driver.store.tasks.promote(limit=100)).count == 20
    assert len(await driver.claim_ids("w-2")) == len(TENANTS)


async def test_a_tenants_tasks_are_one_line_wherever_it_lives(driver: StoreDriver) -> None:
    lines = {tenant: await driver.submit_many(3, tenant=tenant) for tenant in TENANTS}
    for tenant, line in lines.items():
        assert len({partition_of(task_id) for task_id in line}) == 1
        assert await driver.line(tenant, limit=9) == line[1:]
    for n in range(3):
        claimed = [one.task for one in await driver.claim()]
        assert {task.id for task in claimed} == {line[n] for line in lines.values()}
        for task in claimed:
            await driver.complete(task)
    views = await driver.store.views.tenants(TENANTS)
    assert [(view.tenant, view.waiting) for view in views] == [(tenant, 0) for tenant in TENANTS]


async def test_a_key_finds_the_first_task_with_it(driver: StoreDriver) -> None:
    for tenant in (None, *TENANTS):
        first = await driver.submit(tenant=tenant, key="k", payload=1)
        [again] = await driver.insert(driver.submission(tenant=tenant, key="k", payload=1))
        [other] = await driver.insert(driver.submission(tenant=tenant, key="k", payload=2))
        assert (again, other) == (Existing(first.id), Conflict(first.id))


async def test_what_is_counted_found_and_written_down_is_merged(driver: StoreDriver) -> None:
    tasks = await one_of_each(driver)
    for task in tasks:
        driver.clock.advance(1)
        await driver.ask(Command.CANCEL, task)
    stats = await driver.store.views.stats()
    assert stats.by_status == {Status.CANCELLED: len(TENANTS)}
    assert stats.by_queue["default"] == Counter({Place.SETTLED: len(TENANTS)})
    assert [(move.before, move.after, move.count) for move in stats.moves] == [
        (Status.PENDING, Status.CANCELLED, len(TENANTS))
    ]
    told: list[str] = []
    while page := await driver.store.admin.audits(limit=7, cursor=str(len(told))):
        told += [entry.task_id for entry in page]
    assert told == ids(tasks)[::-1]
    assert await driver.store.admin.seal(limit=100) == len(TENANTS)
    chain = await driver.store.admin.chain(limit=100)
    assert [link.entry.task_id for link in chain.links] == ids(tasks)
    assert (first_break(chain.base, chain.links), chain.loose) == (None, 0)
    assert [entry.task_id for entry in await driver.store.admin.audits(limit=100)] == told


async def test_pages_are_complete_and_in_order(driver: StoreDriver) -> None:
    tasks = await one_of_each(driver)
    found: list[str] = []
    cursor = None
    while True:
        page = await driver.store.views.find(Filter(), limit=7, cursor=cursor)
        found += [task.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == sorted(ids(tasks), reverse=True)
    of_one = await driver.store.views.find(Filter(tenant=TENANTS[3]), limit=7)
    assert [task.id for task in of_one.tasks] == [tasks[3].id]


async def test_what_has_ended_is_pruned_everywhere_up_to_the_limit(driver: StoreDriver) -> None:
    for task in await one_of_each(driver, keep_seconds=60):
        await driver.ask(Command.CANCEL, task)
    driver.clock.advance(100)
    counts = [
        await driver.store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=15, dry_run=False)
        for _ in range(4)
    ]
    assert counts == [15, 15, 10, 0]


async def test_all_keys_of_a_partition_share_a_slot_and_none_is_elsewhere(
    driver: StoreDriver, cluster: Cluster, redis_namespace: str
) -> None:
    await one_of_each(driver, queue="other", plan="p", key="k")
    claimed = [one.task for one in await driver.claim(queues=("other",))]
    for task in claimed[:10]:
        await driver.complete(task)
    for task in claimed[10:20]:
        await driver.suspend(await driver.finish_stage(task, seen=1))
    await driver.submit_many(9, tenant=TENANTS[0])
    names = names_in(cluster)
    mine = [name for name in names if redis_namespace in name]
    slots: dict[str, set[int]] = {}
    for name in mine:
        tag, _, _ = name.partition(":")
        slots.setdefault(tag, set()).add(key_slot(name.encode()))
    assert set(slots) == {f"{{{redis_namespace}-{n:02}}}" for n in range(PARTITIONS)}
    assert all(len(found) == 1 for found in slots.values())


def names_in(cluster: Cluster) -> list[str]:
    names: list[str] = []
    for server in cluster.servers[:3]:
        with server.client() as client:
            names += client.scan_iter(count=1000)
    return names


@pytest.mark.parametrize("other", [1, 4, 16])
async def test_another_number_of_partitions_is_refused(
    driver: StoreDriver, cluster: Cluster, redis_namespace: str, other: int
) -> None:
    before = names_in(cluster)
    told = rf"made with {PARTITIONS} partitions, not {other}: add \?partitions={PARTITIONS}"
    with pytest.raises(StoreForeign, match=told):
        await opened(f"{cluster.url}?partitions={other}", driver.clock, redis_namespace)
    assert sorted(names_in(cluster)) == sorted(before)
    again = await opened(f"{cluster.url}?partitions={PARTITIONS}", driver.clock, redis_namespace)
    await again.close()


# -- a master dies


async def test_what_a_promoted_replica_lacks_is_counted_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Cluster(appendonly=True) as cluster:
        clock = ManualClock()
        store = await opened(f"{cluster.url}?partitions=3", clock, "ns")
        driver = StoreDriver(store, clock)
        kept = await one_of_each(driver)
        master = cluster.master_of("{ns-00}:meta")
        with master.client() as client:
            assert client.wait(1, 50_000) == 1
        cut_off(replica_of(cluster, master), master)
        lost = [task.id for task in await one_of_each(driver) if holds(cluster, master, task.id)]
        assert lost
        cluster.kill(master)
        cluster.wait_ok()
        clock.advance(1)

        async def answers() -> bool:
            return list(await store.views.load(lost)) == [None] * len(lost)

        await eventually(answers, "the promoted replica is found")
        claimed = [one.task for one in await driver.claim()]
        assert {task.id for task in claimed} == set(ids(kept))
        for task in claimed:
            assert (await driver.complete(task)).status is Status.COMPLETED
        [check] = [check for check in await store.admin.checks() if check.name == "lost writes"]
        assert (check.good, check.message.split()[0]) == (False, str(len(lost)))
        told = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert told
        assert all("writes that had been answered are gone" in one.message for one in told)
        assert not await store.admin.doctor(fix=False, limit=10)
        await store.close()


@pytest.mark.slow
async def test_a_killed_master_under_load_is_survived() -> None:
    with Cluster(appendonly=True) as cluster:
        load = Load(f"{cluster.url}?partitions={PARTITIONS}")
        async with load.running():
            await load.more_are_done(50)
            dead = cluster.master_of("{load-00}:meta")
            cluster.kill(dead)
            await load.is_refused()
            await asyncio.to_thread(cluster.wait_ok)
            await load.more_are_done(50)
            dead.start()  # and learns that it is a replica now
            await asyncio.to_thread(cluster.wait_ok)
            await load.more_are_done(50)
        assert dead.role() == "slave"


@pytest.mark.slow
async def test_a_partition_is_out_of_reach_while_its_slot_moves_and_whole_afterwards() -> None:
    with Cluster(replicas=False, appendonly=True) as cluster:
        clock = ManualClock()
        store = await opened(f"{cluster.url}?partitions=1", clock, "ns")
        driver = StoreDriver(store, clock)
        before = await driver.submit(tenant="t")
        source = cluster.master_of("{ns-00}:meta")
        target = next(server for server in cluster.servers if server is not source)
        with source.client() as here, target.client() as there:
            mine, yours = (one.execute_command("CLUSTER", "MYID") for one in (here, there))
            slot = key_slot(b"{ns-00}:meta")
            there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", mine)
            here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", yours)
            with pytest.raises(StoreUnavailable, match="TRYAGAIN"):
                await driver.submit(tenant="u")
            for name in here.scan_iter("{ns-00}:*", count=1000):
                here.migrate("127.0.0.1", target.port, name, 0, 50_000)
            for one in (there, here):
                one.execute_command("CLUSTER", "SETSLOT", slot, "NODE", yours)
        assert (await driver.take()).id == before.id
        assert not await store.admin.doctor(fix=False, limit=10)
        await store.close()


def replica_of(cluster: Cluster, master: RedisServer) -> RedisServer:
    return cluster.servers[cluster.servers.index(master) + 3]


def holds(cluster: Cluster, server: RedisServer, task_id: str) -> bool:
    return cluster.master_of(f"{{ns-{partition_of(task_id)}}}:meta") is server


async def test_a_claim_sent_again_gets_all_of_it_from_all_partitions_and_nothing_new(
    driver: StoreDriver,
) -> None:
    given = {task.id for task in [await driver.submit(tenant=tenant) for tenant in TENANTS]}
    claimed = await driver.claim(request="r", limit=30)
    assert len({partition_of(one.task.id) for one in claimed}) > 1
    again = await driver.claim(request="r", limit=5)
    assert {one.task.id for one in again} == {one.task.id for one in claimed}
    rest = await driver.claim_ids(request="s")
    assert given == {one.task.id for one in claimed} | set(rest)
