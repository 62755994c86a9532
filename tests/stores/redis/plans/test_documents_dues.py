"""The keys of P4 and T2: a plan and a trigger as a person with redis-cli and the documents in hand
sees them."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from holdfast.domain.plan.plan import WAITING, PlanStatus
from holdfast.domain.trigger.schedule import Cron, Every, Once, Schedule
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.stores.redis.encoding.record import from_iso
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, COMPLETED, PlanStoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver, json
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

DAY = 86_400
NO_KEY, FOREVER = -2, -1  # what TTL says
OF_A_PLAN = ("plan:p", "plan:p:members", "plan:p:admitted", "plan:p:events")

TRIGGER = {
    "id", "triggerAt", "kind", "target", "payload", "status", "owner", "leaseUntil", "retryCount",
    "tenant",
}  # fmt: skip
PLAN = {
    "planId", "status", "taskIds", "progress", "maxConcurrency", "createdAt", "updatedAt",
}  # fmt: skip


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


@pytest.fixture
def triggers(bench: Bench) -> TriggerDriver:
    return TriggerDriver(bench.store, bench.clock, bench.driver)


@pytest.fixture
def plans(bench: Bench) -> PlanStoreDriver:
    return PlanStoreDriver(bench.store, bench.clock)


# -- T2


async def test_a_trigger_is_a_hash_with_the_documents_fields(
    bench: Bench, triggers: TriggerDriver
) -> None:
    saved = await triggers.save_due("nightly", tenant="t", payload=json({"to": "ü"}))
    record = bench.ask("HGETALL", "trigger:nightly")
    assert set(record) >= TRIGGER - {"owner", "leaseUntil"}
    assert "owner" not in record
    assert (record["id"], record["status"], record["tenant"]) == ("nightly", saved.status, "t")
    assert record["payload"] == '{"to":"ü"}'
    assert record["triggerAt"].endswith("Z")
    assert from_iso(record["triggerAt"]) == saved.trigger_at
    held = await triggers.take(saved, "s-1")
    record = bench.ask("HGETALL", "trigger:nightly")
    assert set(record) >= TRIGGER
    assert (record["owner"], record["status"]) == ("s-1", held.status)
    assert float(record["leaseUntil"]) == held.lease_until


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (Once(at=1_700_000_123.5), {"kind": "once", "at": "1700000123.5"}),
        (
            Every(seconds=900.0, start=1_700_000_000.0),
            {"kind": "interval", "seconds": "900.0", "start": "1700000000.0"},
        ),
        (
            Cron(expression="0 3 * * *", tz="Asia/Shanghai"),
            {"kind": "cron", "expression": "0 3 * * *", "tz": "Asia/Shanghai"},
        ),
    ],
)
async def test_the_kind_of_a_trigger_is_told_and_nothing_of_the_one_before(
    bench: Bench, triggers: TriggerDriver, schedule: Schedule, told: dict[str, str]
) -> None:
    for before in (Once(at=1.0), Every(seconds=9.0, start=1.0), Cron(expression="* * * * *")):
        await triggers.save("nightly", schedule=before)
    await triggers.save("nightly", schedule=schedule)
    record = bench.ask("HGETALL", "trigger:nightly")
    of_schedules = {"kind", "at", "seconds", "start", "expression", "tz"}
    assert {name: record[name] for name in of_schedules & set(record)} == told


async def test_what_is_due_is_scored_by_its_time_in_milliseconds(
    bench: Bench, triggers: TriggerDriver
) -> None:
    await triggers.save("later", due_in=63.25)
    await triggers.save_due("soon")
    now = bench.clock.now()
    due = dict(bench.ask("ZRANGE", "triggers:due", 0, -1, "WITHSCORES"))
    assert due == {"soon": now * 1000, "later": (now + 63.25) * 1000}
    assert list(due) == ["soon", "later"]


async def test_a_lease_is_a_key_with_its_owner_for_as_long_as_it_lasts(
    bench: Bench, triggers: TriggerDriver
) -> None:
    saved = await triggers.save_due("nightly")
    assert bench.ask("TTL", "trigger:lease:nightly") == NO_KEY
    held = await triggers.port.acquire_lease(saved.id, "s-1", lease_seconds=600)
    assert held is not None
    assert bench.ask("GET", "trigger:lease:nightly") == "s-1"
    assert 500_000 < bench.ask("PTTL", "trigger:lease:nightly") <= 600_000
    assert bench.ask("ZRANGE", "triggers:due", 0, -1) == []
    assert bench.ask("ZSCORE", "triggers:leased", "nightly") == held.lease_until
    await triggers.fire(held)
    assert bench.ask("TTL", "trigger:lease:nightly") == NO_KEY
    assert bench.ask("ZRANGE", "triggers:due", 0, -1) == ["nightly"]
    assert bench.ask("ZRANGE", "triggers:leased", 0, -1) == []


async def test_no_record_of_a_trigger_expires(bench: Bench, triggers: TriggerDriver) -> None:
    await triggers.save("waits", due_in=366 * DAY)
    await triggers.settle(await triggers.save("ended"))
    assert [bench.ask("TTL", f"trigger:{name}") for name in ("waits", "ended")] == [FOREVER] * 2
    await TriggerShortcuts(bench.store).remove("waits")
    await TriggerShortcuts(bench.store).remove("ended")
    assert not [name for name in bench.names() if name.startswith("trigger")]


# -- P4


async def test_a_plan_is_a_hash_with_the_documents_fields(
    bench: Bench, plans: PlanStoreDriver
) -> None:
    plan = await plans.start(name="p", max_concurrency=5)
    plan = await plans.drive(plan, progress=0.25)
    record = bench.ask("HGETALL", "plan:p")
    assert set(record) >= PLAN
    assert (record["planId"], record["status"]) == ("p", plan.status)
    tasks = await bench.store.plans.tasks("p")
    assert tasks is not None
    assert msgspec.json.decode(record["taskIds"]) == list(tasks.ids)
    assert (record["progress"], record["maxConcurrency"]) == ("0.25", "5")
    assert from_iso(record["createdAt"]) == plan.created_at


async def test_the_tasks_that_have_a_slot_are_named(bench: Bench, plans: PlanStoreDriver) -> None:
    plan = await plans.start(name="p")
    plan = await plans.drive(plan, moves={0: ADMITTED, 1: ADMITTED, 3: ADMITTED})
    assert bench.ask("ZRANGE", "plan:p:admitted", 0, -1) == ["p.task-0", "p.task-1", "p.task-3"]
    plan = await plans.drive(plan, moves={0: COMPLETED, 1: WAITING})
    assert bench.ask("ZRANGE", "plan:p:admitted", 0, -1) == ["p.task-3"]
    assert bench.ask("HGETALL", "plan:p:members") == {
        "0": '["completed",3]',
        "3": '["admitted",1]',
    }


async def test_a_plan_that_has_settled_expires_and_no_other(
    bench: Bench, plans: PlanStoreDriver
) -> None:
    def left() -> set[int]:
        return {int(bench.ask("TTL", name)) for name in OF_A_PLAN}

    plan = await plans.drive(await plans.start(name="p"), moves={0: ADMITTED})
    assert left() == {FOREVER}
    plan = await plans.drive(plan, status=PlanStatus.COMPLETED)
    assert all(30 * DAY - 60 <= seconds <= 30 * DAY for seconds in left())
    plan = await plans.ask(plan, status=PlanStatus.ROLLING_BACK)
    assert left() == {FOREVER}
    assert bench.ask("ZRANGE", "plans:settled", 0, -1) == []


async def test_what_the_server_let_go_of_a_plan_is_swept(
    bench: Bench, plans: PlanStoreDriver
) -> None:
    await plans.create_settled(name="p")
    for name in OF_A_PLAN:
        bench.ask("DEL", name)
    assert await bench.store.admin.doctor(fix=False, limit=10) == []  # it waits to be swept
    assert await plans.all_ids() == []
    bench.clock.advance(31 * DAY)
    assert await plans.prune() == 1
    assert not [name for name in bench.names() if name.startswith("plan")]


async def test_a_plan_made_anew_under_an_old_name_is_listed_once_and_not_swept(
    bench: Bench, plans: PlanStoreDriver
) -> None:
    await plans.create_settled(name="p", keep_seconds=1)
    for name in OF_A_PLAN:
        bench.ask("DEL", name)
    bench.clock.advance(2 * DAY)
    again = await plans.create_settled(name="p")
    assert await plans.all_ids() == ["p"]
    assert await plans.prune() == 0
    assert await plans.load(again) == again
    assert await plans.all_ids() == ["p"]
    assert len(bench.ask("ZRANGE", "plans", 0, -1)) == 1
