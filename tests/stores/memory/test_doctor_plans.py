"""The doctor of the memory store finds triggers and plans that disagree with themselves."""

import pytest
from msgspec.structs import replace

from holdfast.domain.plan.plan import PlanStatus
from holdfast.domain.trigger.trigger import TriggerStatus
from holdfast.stores.memory import MemoryStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, FAILED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def plans(store: MemoryStore, clock: ManualClock) -> PlanStoreDriver:
    return PlanStoreDriver(store, clock)


async def found(store: MemoryStore) -> str:
    (finding,) = await store.admin.doctor(fix=False, limit=10)
    assert (finding.invariant, finding.mended) == ("I11", False)
    return finding.message


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"trigger_at": None}, "is PENDING, but has no fire time"),
        ({"status": TriggerStatus.PROCESSING}, "is PROCESSING, but has no owner"),
        ({"lease_until": 5.0}, "has no owner, and a lease until 5.0"),
    ],
)
async def test_the_doctor_finds_a_trigger_that_does_not_agree_with_itself(
    store: MemoryStore, clock: ManualClock, fields: dict[str, object], says: str
) -> None:
    trigger = await TriggerDriver(store, clock, StoreDriver(store, clock)).save()
    assert not await store.admin.doctor(fix=False, limit=10)
    store.triggers._state.triggers[trigger.id] = replace(trigger, **fields)
    assert await found(store) == f"trigger {trigger.id} {says}"


async def test_the_doctor_finds_a_plan_whose_counts_are_not_those_of_its_members(
    store: MemoryStore, plans: PlanStoreDriver
) -> None:
    plan = await plans.drive(await plans.start(waves=(1, 4)), moves={0: ADMITTED, 2: ADMITTED})
    assert not await store.admin.doctor(fix=False, limit=10)
    store.plans._state.plans[plan.id].members[2] = FAILED
    says = "counts {'admitted': 1} in wave 1, but its members are {'failed': 1}"
    assert await found(store) == f"plan {plan.id} {says}"


async def test_the_doctor_finds_a_leased_plan_that_nobody_would_take_over(
    store: MemoryStore, plans: PlanStoreDriver
) -> None:
    plan = await plans.start()
    assert plan.lease is not None
    store.plans._state.plans[plan.id].due = None
    says = f"is leased until {plan.lease.until}, but is never due"
    assert await found(store) == f"plan {plan.id} {says}"


async def test_the_doctor_finds_a_settled_plan_that_somebody_would_look_at(
    store: MemoryStore, plans: PlanStoreDriver
) -> None:
    plan = await plans.drive(await plans.start(), status=PlanStatus.COMPLETED)
    store.plans._state.plans[plan.id].due = 0.0
    assert await found(store) == f"plan {plan.id} has settled, but is due at 0.0"
