"""The workers look after the store: what does not agree is mended without anybody asking."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast.domain.errors import StoreError, StoreUnavailable
from holdfast.domain.task.placement import Place
from holdfast.ports import Finding
from holdfast.runtime.services.pruner import Pruner
from holdfast.runtime.worker_options import WorkerOptions
from holdfast.stores.redis.client.topology import Topology
from holdfast.stores.redis.keys import KeyNames
from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.repair import doctor
from holdfast.stores.redis.repair.token_lock import TokenLock
from holdfast.stores.redis.views import walks
from tests.support.redis.redis_stores import Bench, benched
from tests.support.runtime.environment import environment
from verify.servers import RedisServer


@pytest_asyncio.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


def pruner(bench: Bench, *, reconcile_seconds: float) -> Pruner:
    options = WorkerOptions(audit_seconds=86_400, reconcile_seconds=reconcile_seconds)
    return Pruner(environment(bench.store, bench.clock, options=options))


async def test_a_task_that_fell_out_of_its_queue_is_put_back(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    task = await bench.driver.submit()
    bench.ask("DEL", "queue:tasks")
    assert await bench.driver.claim_ids() == []
    with caplog.at_level(logging.WARNING):
        await pruner(bench, reconcile_seconds=3600).tick()
    assert f"I1, task {task.id}: the task is ready but not in its queue (repaired)" in caplog.text
    assert await bench.driver.claim_ids() == [task.id]


async def test_one_of_many_workers_does_it(bench: Bench) -> None:
    await pruner(bench, reconcile_seconds=3600).tick()
    task = await bench.driver.submit()
    bench.ask("DEL", "queue:tasks")
    await pruner(bench, reconcile_seconds=3600).tick()
    assert (await bench.driver.load(task.id)).place is Place.READY
    assert await bench.driver.claim_ids() == []
    await bench.store.admin.doctor(fix=True, limit=10)


async def test_it_can_be_turned_off(bench: Bench) -> None:
    await bench.driver.submit()
    bench.ask("DEL", "queue:tasks")
    await pruner(bench, reconcile_seconds=0).tick()
    assert await bench.driver.claim_ids() == []
    await bench.store.admin.doctor(fix=True, limit=10)


# -- who does it, and when


async def reconciled(bench: Bench, *parts: Partition) -> list[Finding]:
    return await doctor.reconcile(parts or [bench.store._parts.first], 3600)


async def fall_out_of_its_queue(bench: Bench) -> str:
    task = await bench.driver.submit()
    bench.ask("DEL", "queue:tasks")
    return task.id


def failing(monkeypatch: pytest.MonkeyPatch, prefix: str, error: Exception) -> None:
    """Half-way through this partition."""
    everything = doctor._everything

    async def half_of_it(look: doctor.Examination) -> AsyncIterator[Finding]:
        async for finding in everything(look):
            yield finding
            if look.part.keys.prefix == prefix:
                raise error

    monkeypatch.setattr(doctor, "_everything", half_of_it)


async def test_a_mark_that_is_sent_twice_is_ones_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = await fall_out_of_its_queue(bench)
    ask = Topology.ask_owner

    async def twice(topology: Topology, key: Any, commands: Any) -> Any:
        if commands[0][0] == "SET":
            await ask(topology, key, commands)
        return await ask(topology, key, commands)

    monkeypatch.setattr(Topology, "ask_owner", twice)
    assert [finding.task_id for finding in await reconciled(bench)] == [task_id]
    assert await reconciled(bench) == []


async def test_a_look_that_fails_is_not_taken_for_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fall_out_of_its_queue(bench)
    with monkeypatch.context() as patch:
        failing(patch, bench.namespace, StoreUnavailable("away"))
        with pytest.raises(StoreUnavailable):
            await reconciled(bench)
    assert "reconciled" not in bench.names()
    task_id = await fall_out_of_its_queue(bench)
    assert task_id in {finding.task_id for finding in await reconciled(bench)}


async def test_the_mark_of_another_is_left_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours has lapsed while we stood still."""
    await fall_out_of_its_queue(bench)
    failing(monkeypatch, bench.namespace, StoreUnavailable("away"))
    acquire = TokenLock.acquire

    async def acquire_and_lapse(*args: Any) -> bool:
        is_ours = await acquire(*args)
        bench.ask("SET", "reconciled", "another")
        return is_ours

    monkeypatch.setattr(TokenLock, "acquire", acquire_and_lapse)
    with pytest.raises(StoreUnavailable):
        await reconciled(bench)
    assert bench.ask("GET", "reconciled") == "another"


async def test_who_looks_marks_it_for_a_short_while_and_who_has_looked_for_the_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lasts: list[int] = []
    everything = doctor._everything

    async def looked(look: doctor.Examination) -> AsyncIterator[Finding]:
        lasts.append(bench.ask("PTTL", "reconciled"))
        async for finding in everything(look):
            yield finding

    monkeypatch.setattr(doctor, "_everything", looked)
    await reconciled(bench)
    assert 0 < lasts[0] <= doctor.LOOKING_SECONDS * 1000
    assert bench.ask("PTTL", "reconciled") > doctor.LOOKING_SECONDS * 1000


async def test_a_look_that_takes_long_keeps_its_mark(bench: Bench) -> None:
    part = bench.store._parts.first
    paced = TokenLock(part, "reconciled", "token").keep(doctor.LOOKING_SECONDS)
    await paced()
    assert "reconciled" not in bench.names()
    bench.clock.advance(doctor.LOOKING_SECONDS / 2)
    await paced()
    assert bench.ask("GET", "reconciled") == "token"


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreError("odd")])
async def test_a_partition_that_fails_keeps_no_other_from_being_mended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    part = bench.store._parts.first
    prefix = f"{bench.namespace}-other"
    other = Partition(
        part.client, KeyNames(prefix), part.terms, bench.clock.times, bench.clock.steady
    )
    bench.ask("HINCRBY", "counts", "default ready", 3)
    await part.client.many(other.keys, [("HSET", other.keys("counts"), "default ready", 1)])
    failing(monkeypatch, prefix, error)
    found = await reconciled(bench, other, part)
    assert [finding.mended for finding in found] == [True]
    assert bench.ask("HGET", "counts", "default ready") is None


async def test_the_background_look_leaves_half_of_the_time_to_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    times = iter([10.0, 10.5, 11.0, 13.0, 15.0, 100.0, 105.0])

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    pace = walks.half_of_the_time(lambda: next(times))
    for _ in range(3):
        await pace()
    assert slept == [0.5, 2.0, walks.PAUSE_MAX_SECONDS]
    await bench.driver.submit_many(2)
    slept.clear()
    await bench.store.admin.doctor(fix=True, limit=10)
    assert slept == []  # somebody waits for it
    await reconciled(bench)
    assert slept
