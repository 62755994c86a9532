"""Tasks that follow from others, over many partitions of a Cluster: each lives beside its cause."""

from collections.abc import AsyncIterator, Iterator

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import InvalidInput
from holdfast.domain.task.state import Command
from holdfast.ports import Clock, Filter, Store
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import FOLLOWERS, StoreDriver
from holdfast.testing.contract.plans.follow_up_tasks import PlanFollowUpContract
from holdfast.testing.contract.plans.follow_up_tasks import follower as follower_of
from holdfast.testing.contract.tasks.follow_up_tasks import FollowUpTasks
from tests.support.redis.redis_stores import on_partitions, partitioned_cluster
from verify.servers import Cluster

PARTITIONS = 8
TENANTS = [f"tenant-{n:02}" for n in range(30)]
EACH_PARTITION = {f"{n:02}" for n in range(PARTITIONS)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with partitioned_cluster() as started:
        yield started


class TestFollowing(FollowUpTasks, PlanFollowUpContract):
    url: str
    namespace: str

    @pytest.fixture(autouse=True)
    def a_namespace_of_its_own(self, cluster: Cluster, redis_namespace: str) -> None:
        self.url = f"{cluster.url}?partitions={PARTITIONS}"
        self.namespace = redis_namespace

    async def open(self, clock: Clock) -> Store:
        assert isinstance(clock, ManualClock)
        store = RedisStore(self.url, clock, self.namespace, time=clock.times)
        await store.open()
        return store


@pytest.fixture
async def driver(cluster: Cluster, redis_namespace: str) -> AsyncIterator[StoreDriver]:
    async with on_partitions(cluster, redis_namespace, PARTITIONS) as (store, clock):
        yield StoreDriver(store, clock)


def partition_of(name: str) -> str:
    return name.rpartition(".p")[2]


def elsewhere(task_id: str) -> str:
    name, _, number = task_id.rpartition(".p")
    return f"{name}.p{(int(number) + 1) % PARTITIONS:02}"


async def test_a_follower_lives_where_its_task_does(driver: StoreDriver) -> None:
    tasks = [await driver.submit(tenant=tenant) for tenant in TENANTS]
    followers = [driver.follower(task, f"of-{n:02}") for n, task in enumerate(tasks)]
    assert {partition_of(one.task.id) for one in followers} == EACH_PARTITION
    for task, one in zip(tasks, followers, strict=True):
        assert partition_of(one.task.id) == partition_of(task.id)
        await driver.commit(replace(driver.request(Command.CANCEL, task), follows=(one,)))
    made = sorted(one.task.id for one in followers)
    assert [task and task.id for task in await driver.store.views.load(made)] == made
    page = await driver.store.views.find(Filter(queue=FOLLOWERS), limit=100)
    assert [task.id for task in page.tasks] == made[::-1]
    for claimed in await driver.claim(queues=(FOLLOWERS,)):
        made.remove(claimed.task.id)
        assert (await driver.complete(claimed.task)).settled
    assert made == []


async def test_a_follower_lives_where_its_plan_does(driver: StoreDriver) -> None:
    plans = PlanStoreDriver(driver.store, driver.clock)
    made = []
    for _ in range(30):
        plan = await plans.ready()
        one = follower_of(driver, plan, f"of-{plan.id}")
        await plans.commit(replace(await plans.request(plan), follows=(one,)))
        made.append(one.task.id)
    assert {partition_of(task_id) for task_id in made} == EACH_PARTITION
    for claimed in await driver.claim(queues=(FOLLOWERS,)):
        made.remove(claimed.task.id)
        assert (await driver.complete(claimed.task)).settled
    assert made == []


async def test_a_follower_that_lives_elsewhere_is_refused(driver: StoreDriver) -> None:
    task = await driver.submit()
    good = driver.follower(task)
    for wrong in (elsewhere(good.task.id), "follower", f"follower.p{int(partition_of(task.id))}"):
        away = driver.with_id(good, wrong)
        with pytest.raises(InvalidInput, match="follower"):
            await driver.apply(replace(driver.request(Command.CANCEL, task), follows=(away,)))
    assert await driver.load(task.id) == task
    plans = PlanStoreDriver(driver.store, driver.clock)
    plan = await plans.ready()
    away = driver.with_id(good, elsewhere(follower_of(driver, plan).task.id))
    with pytest.raises(InvalidInput, match="partition"):
        await plans.port.apply(replace(await plans.request(plan), follows=(away,)))
    assert await plans.load(plan) == plan


async def test_a_follower_of_a_tenant_is_at_home_with_it_only(driver: StoreDriver) -> None:
    task = await driver.submit(tenant="t")
    others = (driver.follower(None, tenant=tenant) for tenant in TENANTS)
    other = next(one for one in others if partition_of(one.task.id) != partition_of(task.id))
    moved = driver.with_id(other, driver.store.colocated_id("follower", task_id=task.id))
    for away in (other, moved):
        with pytest.raises(InvalidInput):
            await driver.apply(replace(driver.request(Command.CANCEL, task), follows=(away,)))
    assert await driver.load(task.id) == task


async def test_beside_an_id_that_no_task_can_have_nothing_lives(driver: StoreDriver) -> None:
    with pytest.raises(InvalidInput, match="nobody"):
        driver.store.colocated_id("follower", task_id="nobody")
