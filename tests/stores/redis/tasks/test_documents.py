"""The keys of P3, P6 and Q3, as a person with redis-cli and the documents in hand sees them."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from holdfast import Context, Holdfast, Permanent
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Progress, Task
from holdfast.ports import Renewal
from holdfast.testing.contract.drivers.store_driver import beat
from holdfast.testing.contract.drivers.ways import CASES, walk
from tests.support.redis.redis_stores import Bench, benched
from tests.support.runtime.helpers import within_bounds
from verify.servers import RedisServer

DAY = 86_400
LOCK_SECONDS = 9000
NO_KEY, FOREVER = -2, -1  # what TTL says

# What the record names in every status; the rest is ours.
DOCUMENTED = {
    "taskId", "tenantId", "planId", "type", "status", "createdAt", "updatedAt",
    "lastCompletedStageIndex", "pauseRequested", "stageNames",
}  # fmt: skip


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


async def waiting(bench: Bench) -> Task:
    return await bench.driver.submit(tenant="t", plan="p")


async def running(bench: Bench) -> Task:
    task = await bench.driver.start("w-1", tenant="t", plan="p")
    await bench.driver.renew(task, progress=Progress(fraction=0.5, stage="one", at=task.updated_at))
    return await bench.driver.finish_stage(task, order="o-1")


async def retrying(bench: Bench) -> Task:
    return await bench.driver.fail(await running(bench), retry_seconds=60)


async def failed(bench: Bench) -> Task:
    return await bench.driver.suspend(await running(bench))


async def completed(bench: Bench) -> Task:
    return await bench.driver.complete(await running(bench))


async def cancelled(bench: Bench) -> Task:
    return await bench.driver.ask(Command.DISCARD, await failed(bench))


async def rolled_back(bench: Bench) -> Task:
    return await bench.driver.roll_back(await failed(bench))


MAKE = {
    "waiting": waiting,
    "running": running,
    "retrying": retrying,
    "failed": failed,
    "completed": completed,
    "cancelled": cancelled,
    "rolled back": rolled_back,
}
UNSETTLED = {"waiting", "running", "retrying", "failed"}

# The time to live of the record, the checkpoint and its meta, and the tenant's lock.
TIMES: dict[str, tuple[int, int, int]] = {
    "waiting": (FOREVER, NO_KEY, NO_KEY),
    "running": (FOREVER, FOREVER, LOCK_SECONDS),
    "retrying": (FOREVER, FOREVER, NO_KEY),
    "failed": (FOREVER, FOREVER, NO_KEY),
    "completed": (30 * DAY, NO_KEY, NO_KEY),  # its checkpoint has gone with its end
    "cancelled": (30 * DAY, 7 * DAY, NO_KEY),
    "rolled back": (30 * DAY, NO_KEY, NO_KEY),
}


def seconds_left(bench: Bench, name: str) -> int:
    """As set: a second or a few may have passed since."""
    left = int(bench.ask("TTL", name))
    for whole in (30 * DAY, 7 * DAY, LOCK_SECONDS):
        if whole - 60 <= left <= whole:
            return whole
    return left


@pytest.mark.parametrize("state", MAKE)
async def test_only_what_has_settled_expires(bench: Bench, state: str) -> None:
    task = await MAKE[state](bench)
    names = (f"task:{task.id}", f"ckpt:{task.id}", f"ckpt:meta:{task.id}", "lock:tenant:t")
    record, ckpt, meta, lock = (seconds_left(bench, name) for name in names)
    assert (record, ckpt, lock) == TIMES[state]
    assert meta == ckpt


@pytest.mark.parametrize("state", sorted(UNSETTLED))
async def test_nothing_of_an_unsettled_task_expires(bench: Bench, state: str) -> None:
    await MAKE[state](bench)
    passing = {name for name in bench.names() if bench.ask("TTL", name) != FOREVER}
    assert passing <= {"lock:tenant:t"}


@pytest.mark.parametrize("state", MAKE)
async def test_the_record_is_a_hash_with_the_documents_fields(bench: Bench, state: str) -> None:
    task = await MAKE[state](bench)
    assert bench.ask("TYPE", f"task:{task.id}") == "hash"
    record = bench.ask("HGETALL", f"task:{task.id}")
    assert record["status"] == task.status
    assert (record["type"], record["tenantId"], record["planId"]) == ("test.work", "t", "p")
    assert record["createdAt"].endswith("Z")
    if state == "waiting":  # what it can do without comes with its first claim
        return
    assert set(record) >= DOCUMENTED
    assert record["taskId"] == task.id
    assert int(record["lastCompletedStageIndex"]) == task.last_completed


@pytest.mark.parametrize("state", sorted(MAKE.keys() - UNSETTLED))
async def test_a_settled_record_has_no_lease_and_no_progress(bench: Bench, state: str) -> None:
    """But for the name of the last one, which is not called a lease."""
    task = await MAKE[state](bench)
    record = bench.ask("HGETALL", f"task:{task.id}")
    assert not {"leaseOwner", "leaseId", "leaseUntil", "progress"} & set(record)
    assert (record["ranBy"], int(record["fence"])) == ("w-1", task.fence)


# Status → who is in which index. `index:tenant`, by P6: kept on FAILED, cleared by a settlement.
@pytest.mark.parametrize("state", MAKE)
async def test_the_indexes_say_where_the_task_is(bench: Bench, state: str) -> None:
    task = await MAKE[state](bench)
    day = bench.ask("HGET", f"task:{task.id}", "createdAt")[:10]
    assert bench.ask("ZRANGE", f"index:status:{task.status}", 0, -1) == [task.id]
    assert bench.ask("ZRANGE", "index:plan:p", 0, -1) == [task.id]
    assert bench.ask("SMEMBERS", f"index:time:{day}") == {task.id}
    assert bench.ask("GET", "index:tenant:t") == (task.id if state in UNSETTLED else None)
    assert bench.ask("GET", "lock:tenant:t") == (task.id if state == "running" else None)


@pytest.mark.parametrize(("status", "way"), CASES)
async def test_record_and_index_follow_each_move_to_any_of_the_statuses(
    bench: Bench, status: Status, way: str
) -> None:
    task = await walk(bench.driver, way)
    assert bench.ask("HGET", f"task:{task.id}", "status") == status
    told = {name for name in bench.names() if name.startswith("index:status:")}
    assert told == {f"index:status:{status}"}
    assert bench.ask("ZRANGE", f"index:status:{status}", 0, -1) == [task.id]


TYPES: dict[str, tuple[str, str]] = {  # the key → its type, and a state in which it is there
    "task:{id}": ("hash", "waiting"),
    "ckpt:{id}": ("string", "running"),
    "ckpt:meta:{id}": ("hash", "running"),
    "index:tenant:t": ("string", "waiting"),
    "lock:tenant:t": ("string", "running"),
    "queue:tasks": ("stream", "waiting"),
    "queue:retry": ("zset", "retrying"),
    "queue:suspended": ("zset", "failed"),
    # The documents have sets here. Ours are sorted, for their pages: docs/internals/decisions/0008.
    "index:plan:p": ("zset", "waiting"),
    "index:status:RUNNING": ("zset", "running"),
    # This is a set, as there.
    "index:time:{day}": ("set", "waiting"),
}


@pytest.mark.parametrize("name", TYPES)
async def test_each_key_has_the_type_that_the_documents_give_it(bench: Bench, name: str) -> None:
    kind, state = TYPES[name]
    task = await MAKE[state](bench)
    day = bench.ask("HGET", f"task:{task.id}", "createdAt")[:10]
    assert bench.ask("TYPE", name.format(id=task.id, day=day)) == kind


async def test_the_checkpoint_is_json_and_its_meta_says_who_wrote_it(bench: Bench) -> None:
    task = await running(bench)
    saved = msgspec.json.decode(bench.ask("GET", f"ckpt:{task.id}"))
    meta = bench.ask("HGETALL", f"ckpt:meta:{task.id}")
    assert saved["customData"] == {"order": "o-1"}
    assert saved["lastCompletedStageIndex"] == int(meta["lastCompletedStageIndex"]) == 0
    assert (meta["version"], meta["executorInstance"]) == (str(saved["version"]), "w-1")


async def test_the_queues_of_the_waiting_are_scored_by_time(bench: Bench) -> None:
    driver = bench.driver
    late = await driver.fail(await driver.start(tenant="a"), retry_seconds=90)
    soon = await driver.fail(await driver.start(tenant="b"), retry_seconds=30)
    now = bench.clock.times()[0]
    scores: dict[str, Any] = dict(bench.ask("ZRANGE", "queue:retry", 0, -1, "WITHSCORES"))
    assert list(scores) == [soon.id, late.id]
    assert scores == {soon.id: pytest.approx(now + 30), late.id: pytest.approx(now + 90)}
    parked = await driver.suspend(await driver.start(tenant="c"))
    assert bench.ask("ZSCORE", "queue:suspended", parked.id) == pytest.approx(parked.updated_at)


async def test_the_active_task_is_the_head_of_the_line_when_none_runs(bench: Bench) -> None:
    first, second = [await bench.driver.submit(tenant="t") for _ in range(2)]
    assert bench.ask("GET", "index:tenant:t") == first.id
    await bench.driver.ask(Command.CANCEL, first)
    assert bench.ask("GET", "index:tenant:t") == second.id
    await bench.driver.ask(Command.CANCEL, second)
    assert bench.ask("EXISTS", "index:tenant:t") == 0


async def test_a_renewal_gives_the_lock_its_whole_time_again(bench: Bench) -> None:
    task = await running(bench)
    assert bench.ask("EXPIRE", "lock:tenant:t", 100) == 1
    assert await bench.driver.renew(task) == [True]
    assert seconds_left(bench, "lock:tenant:t") == LOCK_SECONDS
    assert bench.ask("GET", "lock:tenant:t") == task.id


async def test_a_renewal_with_anothers_lease_leaves_the_lock_as_it_is(bench: Bench) -> None:
    task = await running(bench)
    foreign = Renewal(task_id=task.id, lease_id="somebody else's")
    bench.ask("EXPIRE", "lock:tenant:t", 100)
    kept = await bench.store.tasks.renew(beat("w-2"), [foreign], lease_seconds=30)
    assert list(kept) == [False]
    assert 0 < bench.ask("TTL", "lock:tenant:t") <= 100


async def test_a_renewal_of_a_task_that_has_ended_makes_no_lock(bench: Bench) -> None:
    task = await running(bench)
    await bench.driver.complete(task)
    assert await bench.driver.renew(task) == [False]
    assert bench.ask("EXISTS", "lock:tenant:t") == 0


async def test_what_is_set_going_again_expires_no_more(bench: Bench) -> None:
    task = await cancelled(bench)
    await bench.driver.ask(Command.ROLLBACK, task)
    names = (f"task:{task.id}", f"ckpt:{task.id}", f"ckpt:meta:{task.id}")
    assert [bench.ask("TTL", name) for name in names] == [FOREVER] * 3
    assert bench.ask("GET", "index:tenant:t") == task.id


async def test_the_settings_reach_the_server(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    terms: dict[str, Any] = {"checkpoint_ttl": "2h", "keep": "3d", "tenant_lock": "1h30m"}
    app = Holdfast(redis_server.url, namespace=redis_namespace, **terms)
    flow = app.workflow("flow", payload=int)
    locks: list[int] = []

    @flow.stage
    async def first(ctx: Context, number: int) -> None:
        with redis_server.client() as client:
            locks.append(client.ttl(f"{redis_namespace}:lock:tenant:t"))

    @flow.stage
    async def second(ctx: Context, number: int) -> None:
        raise Permanent("never")

    async with app.running():
        handle = await flow.submit(1, tenant="t")
        await within_bounds(app.waiters.wait_until_stopped(handle.id))
        await handle.discard()
    with redis_server.client() as client:
        assert 0 < client.ttl(f"{redis_namespace}:ckpt:{handle.id}") <= 2 * 3600
        assert 3600 < locks[0] <= 5400
        assert 2 * DAY < client.ttl(f"{redis_namespace}:task:{handle.id}") <= 3 * DAY
