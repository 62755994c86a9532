"""Queues as Redis sees them (Q3): entries, who has them, and that none is left behind."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.domain.task.state import Command
from holdfast.ports import Kept, Topic
from holdfast.stores.redis.keys import GROUP, RINGS
from holdfast.stores.redis.retention import prune as prune_module
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, beat, patience
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


def entries(bench: Bench, stream: str = "queue:tasks") -> list[dict[str, str]]:
    return [fields for _, fields in bench.ask("XRANGE", stream, "-", "+")]


def pending(bench: Bench, stream: str = "queue:tasks") -> list[tuple[str, str]]:
    """Who has which entry: (worker, entry)."""
    found: list[Any] = bench._client.xpending_range(bench.name(stream), GROUP, "-", "+", 100)
    return [(one["consumer"], one["message_id"]) for one in found]


def consumers(bench: Bench, stream: str = "queue:tasks") -> set[str]:
    return {one["name"] for one in bench.consumers(stream)}


async def lose_all(bench: Bench) -> int:
    bench.clock.advance(LEASE_SECONDS + 1)
    return await bench.store.tasks.expire(limit=100, count_crashes=True)


async def test_an_entry_names_the_task_and_its_type(bench: Bench) -> None:
    task = await bench.driver.submit(type="mail.send")
    other = await bench.driver.submit(type="mail.read", queue="slow")
    assert entries(bench) == [{"taskId": task.id, "type": "mail.send"}]
    assert entries(bench, "queue:tasks:slow") == [{"taskId": other.id, "type": "mail.read"}]


async def test_only_the_head_of_a_tenants_line_has_an_entry(bench: Bench) -> None:
    first, second = [await bench.driver.submit(tenant="t") for _ in range(2)]
    assert [entry["taskId"] for entry in entries(bench)] == [first.id]
    await bench.driver.complete(await bench.driver.take())
    assert [entry["taskId"] for entry in entries(bench)] == [second.id]


async def test_the_entry_is_pending_while_the_task_runs_and_gone_with_its_end(
    bench: Bench,
) -> None:
    task = await bench.driver.start("w-1")
    [(owner, entry)] = pending(bench)
    assert owner == "w-1"
    assert entry == bench.ask("HGET", f"task:{task.id}", "entry")
    await bench.driver.finish_stage(task)
    assert pending(bench) == [(owner, entry)]  # acknowledged with the end, not before
    await bench.driver.complete(await bench.driver.load(task.id))
    assert (pending(bench), bench.ask("XLEN", "queue:tasks")) == ([], 0)


ENDS: dict[str, Any] = {
    "completed": lambda driver, task: driver.complete(task),
    "failed": lambda driver, task: driver.suspend(task),
    "to be tried later": lambda driver, task: driver.fail(task, retry_seconds=60),
    "completed and not kept": lambda driver, task: driver.complete(task),
}


@pytest.mark.parametrize("end", ENDS)
async def test_every_end_of_a_run_acknowledges_and_deletes(bench: Bench, end: str) -> None:
    keep_seconds = 0.0 if "not kept" in end else 60.0
    task = await bench.driver.start("w-1", tenant="t", keep_seconds=keep_seconds)
    await ENDS[end](bench.driver, task)
    assert (pending(bench), bench.ask("XLEN", "queue:tasks")) == ([], 0)


@pytest.mark.parametrize("command", [Command.PAUSE, Command.CANCEL])
async def test_what_is_taken_out_of_the_queue_leaves_no_entry(
    bench: Bench, command: Command
) -> None:
    task = await bench.driver.submit()
    await bench.driver.ask(command, task)
    assert bench.ask("XLEN", "queue:tasks") == 0
    assert await bench.driver.claim() == []


async def test_what_is_given_back_gets_a_new_entry(bench: Bench) -> None:
    task = await bench.driver.start("w-1")
    await bench.driver.give_back(task)
    assert pending(bench) == []
    assert [entry["taskId"] for entry in entries(bench)] == [task.id]


async def test_a_dead_workers_entries_are_taken_over_and_none_is_left(bench: Bench) -> None:
    driver = bench.driver
    ids = await driver.submit_many(5)
    await driver.claim("dead")
    before = pending(bench)
    assert {owner for owner, _ in before} == {"dead"}
    assert await lose_all(bench) == 5
    assert pending(bench) == before  # until somebody has them
    taken = await driver.claim("heir")
    assert sorted(one.task.id for one in taken) == sorted(ids)
    assert pending(bench) == [("heir", entry) for _, entry in before]
    for one in taken:
        await driver.complete(one.task)
    assert (pending(bench), bench.ask("XLEN", "queue:tasks")) == ([], 0)
    assert await bench.store.admin.doctor(fix=False, limit=10) == []


async def test_a_consumer_with_pending_entries_stays_until_they_are_taken_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "IDLE_SECONDS", 0)
    driver = bench.driver
    task = await driver.start("dead")
    await driver.renew(task, worker="dead")
    await bench.store.tasks.leave("dead")
    assert consumers(bench) == {"dead"}
    await lose_all(bench)
    await prune_consumers(bench)
    assert consumers(bench) == {"dead"}
    await driver.complete(await driver.take("heir"))
    await prune_consumers(bench)
    assert "dead" not in consumers(bench)


async def prune_consumers(bench: Bench) -> None:
    await bench.store.admin.prune(Kept.WORKERS, older_than_seconds=0, limit=100, dry_run=False)


async def test_who_leaves_with_empty_hands_is_gone_from_every_queue(bench: Bench) -> None:
    driver = bench.driver
    for queue in ("default", "slow"):
        await driver.submit(queue=queue)
    for worker in ("w-1", "w-2"):
        await bench.store.tasks.renew(beat(worker), [], lease_seconds=LEASE_SECONDS)
    for claimed in await driver.claim("w-1", queues=("default", "slow")):
        await driver.complete(claimed.task)
    await driver.submit()
    await driver.claim("w-2")
    assert (consumers(bench), consumers(bench, "queue:tasks:slow")) == ({"w-1", "w-2"}, {"w-1"})
    await bench.store.tasks.leave("w-1")
    assert (consumers(bench), consumers(bench, "queue:tasks:slow")) == ({"w-2"}, set())
    assert {one.beat.worker for one in await bench.store.views.workers(live_within_seconds=60)} == {
        "w-2"
    }


async def test_after_a_drain_nothing_is_left_in_any_queue(bench: Bench) -> None:
    driver = bench.driver
    for n in range(60):
        await driver.submit(tenant=f"t-{n % 7}", queue=("default", "slow", "slower")[n % 3])
    queues, done = ("slow", "default", "slower"), 0
    for turn in range(200):
        worker = f"w-{turn % 3}"
        for claimed in await driver.claim(worker, queues=queues, limit=4):
            await driver.complete(claimed.task)
            done += 1
    for worker in ("w-0", "w-1", "w-2"):
        await bench.store.tasks.leave(worker)
    assert done == 60
    for stream in ("queue:tasks", "queue:tasks:slow", "queue:tasks:slower"):
        assert (bench.ask("XLEN", stream), pending(bench, stream)) == (0, [])
        assert consumers(bench, stream) == set()
    assert await bench.store.admin.doctor(fix=False, limit=10) == []


async def test_a_worker_serves_its_queues_in_order_of_preference(bench: Bench) -> None:
    driver = bench.driver
    ids = {}
    for queue in ("slow", "default", "fast"):  # the least wanted has waited longest
        ids[queue] = await driver.submit_many(2, queue=queue)
    order = ("fast", "default", "slow")
    assert await driver.claim_ids(queues=order, limit=1) == ids["fast"][:1]
    assert await driver.claim_ids(queues=order, limit=3) == [ids["fast"][1], *ids["default"]]
    assert await driver.claim_ids(queues=("fast",), limit=9) == []
    assert await driver.claim_ids(queues=order, limit=9) == ids["slow"]


async def test_a_lost_task_comes_before_those_that_wait_in_its_own_queue_only(
    bench: Bench,
) -> None:
    driver = bench.driver
    lost = await driver.start("dead", queue="slow")
    await lose_all(bench)
    waiting = await driver.submit(queue="slow")
    wanted = await driver.submit(queue="fast")
    order = ("fast", "slow")
    assert await driver.claim_ids(queues=order) == [wanted.id, lost.id, waiting.id]


async def test_an_entry_of_nobody_is_dropped_on_the_way(bench: Bench) -> None:
    task = await bench.driver.submit()
    bench.ask("XADD", "queue:tasks", "*", "taskId", "nobody", "type", "t")
    bench.ask("XADD", "queue:tasks", "*", "something", "else")
    assert await bench.driver.claim_ids() == [task.id]
    assert [owner for owner, _ in pending(bench)] == ["w-1"]
    assert bench.ask("XLEN", "queue:tasks") == 1


async def test_a_ring_that_others_have_pushed_off_the_bell_is_not_missed(bench: Bench) -> None:
    ticket = bench.store.ticket(Topic.READY)
    waiting = asyncio.create_task(bench.store.wait(Topic.READY, ticket, timeout=1e6))
    with bench._client.pipeline() as pipe:
        pipe.xadd(bench.name("bell"), {"ready": "1"}, maxlen=RINGS, approximate=False)
        for _ in range(RINGS):
            pipe.xadd(bench.name("bell"), {"rested": "1"}, maxlen=RINGS, approximate=False)
        pipe.execute()
    async with patience():
        await waiting
