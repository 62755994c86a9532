"""Triggers and plans over many partitions of a Cluster: where they are, and who hands them out."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.domain.plan.plan import PlanStatus
from holdfast.domain.task.transition import Existing, Inserted
from holdfast.ports import Kept
from holdfast.stores.redis.partition_pages import AWAY_SECONDS
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from tests.support.redis.redis_stores import on_partitions, partitioned_cluster
from verify.servers import Cluster

PARTITIONS = 8
NAMES = [f"name-{n:02}" for n in range(40)]


class Both:
    def __init__(self, store: RedisStore, clock: ManualClock) -> None:
        self.store, self.clock, self.driver = store, clock, StoreDriver(store, clock)
        self.triggers = TriggerDriver(store, clock, self.driver)
        self.plans = PlanStoreDriver(store, clock)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with partitioned_cluster() as started:
        yield started


@pytest.fixture
async def both(cluster: Cluster, redis_namespace: str) -> AsyncIterator[Both]:
    async with on_partitions(cluster, redis_namespace, PARTITIONS) as (store, clock):
        yield Both(store, clock)


def partition_of(name: str) -> str:
    return name.rpartition(".p")[2]


# -- where they are


async def test_triggers_are_spread_and_found_by_their_ids_alone(both: Both) -> None:
    saved = [await both.triggers.save(name) for name in NAMES]
    assert {partition_of(one.id) for one in saved} == {f"{n:02}" for n in range(PARTITIONS)}
    assert [await both.triggers.load(one) for one in saved] == saved
    assert await both.triggers.all_ids(limit=7) == sorted(one.id for one in saved)
    assert [await both.triggers.port.remove(one.id) for one in saved] == [True] * len(saved)


async def test_a_name_is_at_home_with_its_tenant_and_an_id_under_itself(both: Both) -> None:
    home = both.store.trigger_id
    task = both.store.partitioned_id("task", tenant="t", key=None)
    assert {partition_of(home(name, tenant="t")) for name in NAMES} == {partition_of(task)}
    assert home("nightly.p03", tenant=None) == "nightly.p03"
    for name in ("nightly.p99", "nightly.p3", "nightly.p003"):
        assert home(name, tenant=None).startswith(f"{name}.p")


@pytest.mark.parametrize("tenant", [None, "t"])
async def test_a_task_lives_where_the_trigger_does_that_made_it(
    both: Both, tenant: str | None
) -> None:
    for name in NAMES[:10]:
        held = await both.triggers.start(name, tenant=tenant)
        change = both.triggers.decide_fire(held)
        (made,) = (await both.triggers.commit(change)).tasks
        assert isinstance(made, Inserted)
        assert partition_of(made.task_id) == partition_of(held.id)
        (again,) = await both.driver.insert(
            both.driver.submission(key=change.submissions[0].task.key, tenant=tenant)
        )
        assert again == Existing(made.task_id)


@pytest.mark.parametrize(
    ("key", "number"), [("a.p03@17", "03"), ("a.p03.p05@17", "05"), ("a.p00@p.p01@", "00")]
)
async def test_a_key_that_begins_with_the_id_of_a_trigger_names_its_partition(
    both: Both, key: str, number: str
) -> None:
    assert partition_of(both.store.partitioned_id("task", tenant=None, key=key)) == number
    of_tenant = both.store.partitioned_id("task", tenant="t", key=None)
    assert both.store.partitioned_id("task", tenant="t", key=key) == of_tenant


@pytest.mark.parametrize("key", ["a.p08@17", "a.p99@17", "a.p3@1", "a@b.p03@17", ".p03@1", "a.p03"])
async def test_any_other_key_has_the_partition_that_it_ever_had(both: Both, key: str) -> None:
    plain = both.store.partitioned_id(key, tenant=None, key=None)
    found = both.store.partitioned_id("task", tenant=None, key=key)
    assert partition_of(found) == partition_of(plain)
    assert [type(one) for one in await both.driver.insert(both.driver.submission(key=key))] == [
        Inserted
    ]


async def test_a_trigger_or_a_task_that_is_not_at_home_is_refused(both: Both) -> None:
    triggers = both.triggers
    with pytest.raises(InvalidInput, match=r"trigger_id\(\)"):
        await triggers.port.save(replace(triggers.build(), id="nightly"))
    home = both.store.trigger_id("nightly", tenant="t")
    other = f"nightly.p{(int(partition_of(home)) + 1) % PARTITIONS:02}"
    with pytest.raises(InvalidInput, match=r"trigger_id\(\)"):
        await triggers.port.save(replace(triggers.build(), id=other, tenant="t"))
    held = await triggers.start(name="nightly", tenant="t")
    elsewhere = next(
        one
        for one in (both.driver.submission(tenant=f"tenant-{n}") for n in range(100))
        if partition_of(one.task.id) != partition_of(held.id)
    )
    with pytest.raises(InvalidInput, match="partition of its trigger"):
        await triggers.apply(triggers.change(held, elsewhere))
    assert await triggers.load(held) == held


async def test_plans_are_spread_and_found_newest_first(both: Both) -> None:
    for name in NAMES:
        await both.plans.create(name)
        both.clock.advance(1)
    assert await both.plans.all_ids(limit=7) == NAMES[::-1]
    found = await both.store.plans.load([*NAMES[:5], "nobody", "a:members"])
    assert [plan and plan.id for plan in found] == [*NAMES[:5], None, None]


# -- who hands them out


async def test_the_earliest_of_all_partitions_are_handed_out_up_to_the_limit(both: Both) -> None:
    for n, name in enumerate(NAMES):
        await both.triggers.save(name, due_in=float(n))
    both.clock.advance(30)
    first = await both.triggers.claim_ids(limit=10)
    assert [name.rpartition(".p")[0] for name in first] == NAMES[:10]
    rest = await both.triggers.claim()
    assert [one.id.rpartition(".p")[0] for one in rest.records] == NAMES[10:31]
    assert rest.next_seconds == pytest.approx(1)
    due = await both.triggers.port.find_due(both.clock.now() + 4)
    assert [one.id.rpartition(".p")[0] for one in due] == NAMES[31:35]


async def test_of_many_concurrent_claims_one_gets_each_record(both: Both) -> None:
    triggers = {(await both.triggers.save_due(name)).id for name in NAMES}
    plans = {(await both.plans.ready(name)).id for name in NAMES}
    looks = (both.triggers.claim_ids(f"s-{n}", limit=9) for n in range(6))
    claims = (both.plans.claim_ids(f"d-{n}", limit=9) for n in range(6))
    for found, wanted in (
        (await asyncio.gather(*looks), triggers),
        (await asyncio.gather(*claims), plans),
    ):
        assert all(len(some) <= 9 for some in found)
        assert sorted(one for some in found for one in some) == sorted(wanted)


async def test_what_has_ended_is_pruned_in_every_partition(both: Both) -> None:
    for name in NAMES:
        await both.triggers.settle(await both.triggers.save(name, keep_seconds=1))
        plan = await both.plans.start(name=name, keep_seconds=1)
        plan = await both.plans.drive(plan, moves={0: ADMITTED})
        await both.plans.drive(plan, status=PlanStatus.COMPLETED)
    both.clock.advance(2)
    for kind in (Kept.TRIGGERS, Kept.PLANS):
        for expected in (25, 15, 0):
            found = await both.store.admin.prune(
                kind, older_than_seconds=0, limit=25, dry_run=False
            )
            assert found == expected
    assert await both.triggers.all_ids() == await both.plans.all_ids() == []


async def test_a_partition_that_is_away_does_not_stop_the_others(
    both: Both, cluster: Cluster, redis_namespace: str
) -> None:
    def is_there(number: str) -> bool:
        return cluster.master_of(f"{{{redis_namespace}-{number}}}:meta").alive

    saved = [(await both.triggers.save_due(name)).id for name in NAMES]
    for name in NAMES:
        await both.plans.ready(name)
    gone = cluster.master_of(f"{{{redis_namespace}-00}}:meta")
    gone.kill()
    there = [one for one in saved if is_there(partition_of(one))]
    assert 0 < len(there) < len(saved)
    found = await both.triggers.claim()
    assert [one.id for one in found.records] == sorted(there)
    assert found.next_seconds == AWAY_SECONDS
    claimed = await both.plans.claim()
    assert 0 < len(claimed.records) < len(NAMES)
    assert claimed.next_seconds == AWAY_SECONDS
    with pytest.raises(StoreUnavailable):  # who asks for all is told that some are missing
        await both.triggers.port.find_all()
    gone.restart()
    cluster.wait_ok()
    assert {*there, *await both.triggers.claim_ids()} == set(saved)
    ids = {plan.id for plan in claimed.records}
    assert ids | set(await both.plans.claim_ids()) == set(NAMES)
