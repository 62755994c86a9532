"""What is cleaned up leaves nothing behind on the server, and nothing is lost with it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.domain.task.state import Command
from holdfast.domain.task.task import Task
from holdfast.ports import Kept
from holdfast.stores.redis import scripts
from holdfast.stores.redis.retention import prune as prune_module
from holdfast.testing.contract.drivers.store_driver import beat
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

DAY = 86_400.0
# What is not of any task: numbers, totals, and the bell.
STAYS = {"meta", "queues", "counts", "moves", "bell", "claims", "queue:tasks"}


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


async def pruned(bench: Bench, kind: Kept, *, limit: int = 1_000, older: float = 0) -> int:
    return await bench.store.admin.prune(kind, older_than_seconds=older, limit=limit, dry_run=False)


async def clean(bench: Bench) -> bool:
    return await bench.store.admin.doctor(fix=False, limit=10) == []


@pytest.mark.parametrize("keep_seconds", [0.0, 60.0])
async def test_everything_that_belongs_to_a_task_goes_with_it(
    bench: Bench, keep_seconds: float
) -> None:
    driver = bench.driver
    for n in range(150):
        await driver.submit(
            tenant=f"t-{n}", key=f"k-{n}", plan="p", stages=("a", "b"), keep_seconds=keep_seconds
        )
    while some := await driver.claim():
        for claimed in some:
            task = await driver.finish_stage(claimed.task, order="o-1")
            await driver.commit(await driver.done(task))
    bench.clock.advance(3 * DAY)
    for kind in (Kept.TASKS, Kept.TOMBSTONES):
        await pruned(bench, kind)
    assert bench.names() <= STAYS
    assert not any((await bench.store.views.stats()).by_queue["default"].values())
    assert await clean(bench)


async def test_a_settled_task_whose_record_the_server_has_let_go_is_swept(bench: Bench) -> None:
    driver = bench.driver
    failed = await driver.suspend(
        await driver.finish_stage(await driver.start(tenant="t", key="k"))
    )
    await driver.ask(Command.DISCARD, failed)
    await driver.submit(tenant="u")
    for name in (f"task:{failed.id}", "key:t|k"):
        assert bench.ask("TTL", name) > 0
        bench.ask("DEL", name)
    bench.clock.advance(31 * DAY)
    assert await clean(bench)  # it merely waits to be swept
    assert (
        await bench.store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=9, dry_run=True) == 1
    )
    assert await pruned(bench, Kept.TASKS) == 1
    assert not {name for name in bench.names() if failed.id in name}
    assert bench.names() & {"settled", "saved", "index:tasks:t", "index:status:CANCELLED"} == set()
    assert bench.ask("HGET", "counts", "default settled") == "0"
    assert bench.ask("HEXISTS", "fences", "t") == 0
    assert await clean(bench)


async def test_a_key_that_belongs_to_another_by_now_stays_when_the_first_is_swept(
    bench: Bench,
) -> None:
    driver = bench.driver
    first = await driver.complete(await driver.start(tenant="t", key="k", keep_seconds=1))
    bench.ask("DEL", f"task:{first.id}")
    second = await driver.submit(tenant="t", key="k")
    bench.clock.advance(10)
    assert await pruned(bench, Kept.TASKS) == 1
    assert bench.ask("GET", "key:t|k").startswith(f"{second.id} ")
    assert bench.ask("ZRANGE", "index:tasks:t", 0, -1) == [second.id]


async def test_a_large_clean_up_passes_over_what_must_stay(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "BATCH", 10)
    driver = bench.driver
    for keep_seconds in (50.0, 1.0):  # the older ones end later
        await driver.submit_many(25, stages=("only",), keep_seconds=keep_seconds)
        for claimed in await driver.claim():
            await driver.complete(claimed.task)
        bench.clock.advance(30)
    bench.clock.advance(40)

    async def prune(*, limit: int, dry_run: bool) -> int:
        return await bench.store.admin.prune(
            Kept.TASKS, older_than_seconds=80, limit=limit, dry_run=dry_run
        )

    assert await prune(limit=500, dry_run=True) == 25
    assert await prune(limit=17, dry_run=False) == 17
    assert await prune(limit=500, dry_run=False) == 8
    assert bench.ask("ZCARD", "settled") == 25


async def discarded(bench: Bench) -> Task:
    """Settled with a checkpoint that the server has let go, with its time to live."""
    driver = bench.driver
    task = await driver.suspend(await driver.finish_stage(await driver.start(), order="o-1"))
    task = await driver.ask(Command.DISCARD, task)
    bench.ask("DEL", f"ckpt:{task.id}", f"ckpt:meta:{task.id}")
    return task


async def test_what_the_stages_kept_outlives_the_checkpoints_time_to_live(bench: Bench) -> None:
    task = await discarded(bench)
    bench.clock.advance(10)
    assert await pruned(bench, Kept.CHECKPOINTS) == 1
    assert {"saved", f"kept:{task.id}"}.isdisjoint(bench.names())
    assert (await bench.driver.detail(task)).data == b'{"order":"o-1"}'


async def test_nothing_of_an_unsettled_task_has_a_time_to_live(bench: Bench) -> None:
    """Also when it was settled before; only the checkpoint of a settled task goes by itself."""
    driver = bench.driver
    half = {"tenant": "a", "key": "k-1"}
    suspended = await driver.suspend(await driver.finish_stage(await driver.start(**half)))
    waits = await driver.fail(await driver.finish_stage(await driver.start(key="k-2")))
    again = await driver.suspend(await driver.finish_stage(await driver.start(key="k-3")))
    again = await driver.ask(Command.DISCARD, again)
    for name in ("ckpt", "ckpt:meta", "task"):
        assert bench.ask("PTTL", f"{name}:{again.id}") > 0
    await driver.ask(Command.ROLLBACK, again)
    for task in (suspended, waits, again):
        names = [name for name in bench.names() if task.id in name]
        assert {f"task:{task.id}", f"ckpt:{task.id}", f"ckpt:meta:{task.id}"} <= set(names)
        assert {name: bench.ask("PTTL", name) for name in names} == dict.fromkeys(names, -1)
    keys = [name for name in bench.names() if name.startswith("key:")]
    assert [bench.ask("PTTL", name) for name in keys] == [-1] * 3


async def test_a_rollback_before_the_clean_up_finds_it_too(bench: Bench) -> None:
    task = await discarded(bench)
    await bench.driver.ask(Command.ROLLBACK, task)
    (claimed,) = await bench.driver.claim()
    assert claimed.checkpoint is not None
    assert b'"customData":{"order":"o-1"}' in claimed.checkpoint
    assert f"kept:{task.id}" not in bench.names()
    await bench.driver.give_back(claimed.task)


async def test_a_checkpoint_that_was_written_since_it_was_read_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = bench.driver
    task = await driver.suspend(await driver.finish_stage(await driver.start()))
    await driver.ask(Command.DISCARD, task)
    bench.clock.advance(10)
    read = prune_module._read_checkpoints

    async def read_just_before_a_write(*args: object) -> object:
        found = await read(*args)  # type: ignore[arg-type]
        bench.ask("HSET", f"ckpt:meta:{task.id}", "version", "99")
        return found

    monkeypatch.setattr(prune_module, "_read_checkpoints", read_just_before_a_write)
    assert await pruned(bench, Kept.CHECKPOINTS) == 0
    assert await bench.store.views.checkpoint(task.id) is not None


async def test_an_audit_entry_that_cannot_be_read_goes_with_those_around_it(bench: Bench) -> None:
    driver = bench.driver
    for _ in range(3):
        await driver.ask(Command.CANCEL, await driver.submit())
        bench.clock.advance(10)
    bench.ask("LSET", "audit", 1, "{")
    assert await pruned(bench, Kept.AUDIT, older=25) == 1
    assert await pruned(bench, Kept.AUDIT, older=15) == 0  # its age is unknown
    assert await pruned(bench, Kept.AUDIT, older=5) == 2
    assert "audit" not in bench.names()


async def test_unreadable_records_do_not_stop_the_clean_up_and_are_not_deleted(
    bench: Bench,
) -> None:
    driver = bench.driver
    ids = await driver.submit_many(4, stages=("only",), keep_seconds=1)
    for claimed in await driver.claim():
        await driver.complete(claimed.task)
    bench.ask("HDEL", f"task:{ids[0]}", "version")
    bench.clock.advance(10)
    assert await pruned(bench, Kept.TASKS) == 3
    assert (await driver.load(ids[0])).settled  # it can be read now
    assert await clean(bench)
    assert await pruned(bench, Kept.TASKS) == 1
    assert await clean(bench)


# -- workers and their consumers


def consumers(bench: Bench, stream: str = "queue:tasks") -> set[str]:
    return {one["name"] for one in bench.consumers(stream)}


async def test_the_consumers_of_workers_that_are_gone_do_not_leak(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "IDLE_SECONDS", 0.0)
    driver = bench.driver
    await bench.store.tasks.renew(beat("lives"), [], lease_seconds=30)
    for n in range(120):
        worker = f"w-{n}"
        await bench.store.tasks.renew(beat(worker), [], lease_seconds=30)
        await driver.complete(await driver.start(worker, queue="other" if n % 2 else "default"))
    await driver.complete(await driver.start("lives"))
    bench.clock.advance(100)
    await bench.store.tasks.renew(beat("lives"), [], lease_seconds=30)
    assert await pruned(bench, Kept.WORKERS, older=50) == 120
    assert consumers(bench) == {"lives"}
    assert consumers(bench, "queue:tasks:other") == set()
    assert bench.ask("HKEYS", "claims") == ["lives"]


async def test_the_beats_of_another_partition_tell_who_lives(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "IDLE_SECONDS", 0.0)
    driver, part = bench.driver, bench.store._parts.first
    for worker in ("lives", "gone"):
        await driver.complete(await driver.start(worker))
    found = await prune_module.prune(
        part, Kept.WORKERS, older_than_seconds=0, limit=10, dry_run=False, live={"lives"}
    )
    assert found == 0  # they are counted where they are heard
    assert consumers(bench) == {"lives"}
    assert bench.ask("HKEYS", "claims") == ["lives"]


async def test_a_consumer_that_was_just_born_is_left_alone(bench: Bench) -> None:
    await bench.driver.complete(await bench.driver.start("young"))  # no beat of it was heard yet
    await pruned(bench, Kept.WORKERS)
    assert consumers(bench) == {"young"}


async def test_a_consumer_with_pending_entries_is_never_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "IDLE_SECONDS", 0.0)
    driver = bench.driver
    lost = await driver.start("dead")
    bench.clock.advance(100)
    await pruned(bench, Kept.WORKERS)
    assert consumers(bench) == {"dead"}
    await bench.store.tasks.expire(limit=10, count_crashes=True)
    await pruned(bench, Kept.WORKERS)
    assert consumers(bench) == {"dead"}
    taken = await driver.take("next")
    assert taken.id == lost.id
    await pruned(bench, Kept.WORKERS)
    assert consumers(bench) == {"next"}
    await driver.complete(taken)
    await pruned(bench, Kept.WORKERS)
    assert consumers(bench) == set()


async def test_a_consumer_that_has_read_something_since_the_look_stays(bench: Bench) -> None:
    """The script looks again by itself."""
    task = await bench.driver.start("w-1")
    part = bench.store._parts.first
    assert await part.call(scripts.PRUNE_CONSUMERS, "default", "w-1") == 0
    assert consumers(bench) == {"w-1"}
    assert (await bench.driver.complete(task)).settled


async def test_a_live_worker_that_holds_nothing_here_may_repeat_its_claim(bench: Bench) -> None:
    """In a Cluster: only the first partition hears all its beats."""
    driver, part = bench.driver, bench.store._parts.first
    for worker in ("lives", "gone"):
        task = await driver.start(worker)
        await bench.store.tasks.renew(beat(worker), [], lease_seconds=30)
        await driver.complete(task)
    bench.clock.advance(100)
    await prune_module.prune(
        part, Kept.WORKERS, older_than_seconds=50, limit=10, dry_run=False, live={"lives"}
    )
    assert bench.ask("HKEYS", "claims") == ["lives"]


@pytest.mark.parametrize("claims_before", [False, True])
async def test_a_claim_that_is_made_during_the_look_may_be_repeated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, claims_before: bool
) -> None:
    monkeypatch.setattr(prune_module, "IDLE_SECONDS", 0.0)
    driver = bench.driver
    if claims_before:
        await driver.complete(await driver.start("w-1"))
    ids = await driver.submit_many(2)
    client = bench.store._client
    ask = client.many

    async def ask_just_before_a_claim(keys: Any, commands: Any) -> Any:
        try:
            return await ask(keys, commands)
        finally:
            if commands[0][0] == "XINFO":
                assert await driver.claim_ids("w-1", request="r") == ids

    monkeypatch.setattr(client, "many", ask_just_before_a_claim)
    await pruned(bench, Kept.WORKERS)
    assert await driver.claim_ids("w-1", request="r") == ids
