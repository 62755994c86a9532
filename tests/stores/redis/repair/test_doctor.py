"""Damage that was planted is found and, where the records tell how, mended."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.domain.errors import StoreUnusable
from holdfast.domain.task.state import Command
from holdfast.ports import Finding
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.topology import Topology
from holdfast.stores.redis.repair import doctor, recount
from holdfast.stores.redis.views import walks
from tests.support.redis.redis_servers import StartRedis
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

LIMIT = 100

SETTLED, PARKED, LATER, RUNS, LINED, BEHIND, READY, NEXT = (f"task-{n:06d}" for n in range(1, 9))


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    """Two tasks in a queue, one that runs, two in its line, two that rest, one that is settled."""
    async with benched(redis_server, redis_namespace) as bench:
        driver, numbered = bench.driver, iter((SETTLED, PARKED, LATER, RUNS, LINED, BEHIND))
        await driver.ask(Command.CANCEL, await driver.submit(id=next(numbered), plan="plan"))
        await driver.suspend(await driver.finish_stage(await driver.start(id=PARKED, tenant="p")))
        await driver.fail(await driver.start(id=LATER, tenant="l"))
        await driver.start(id=RUNS, tenant="t", key="k")
        for name in (LINED, BEHIND):
            await driver.submit(id=name, tenant="t", stages=("only",))
        for name in (READY, NEXT):
            await driver.submit(id=name, stages=("only",))
        assert await looked(bench) == []
        yield bench


async def looked(bench: Bench) -> list[Finding]:
    return list(await bench.store.admin.doctor(fix=False, limit=LIMIT))


async def mended(bench: Bench) -> list[Finding]:
    return list(await bench.store.admin.doctor(fix=True, limit=LIMIT))


def task(bench: Bench, name: str, field: str) -> str:
    return str(bench.ask("HGET", f"task:{name}", field))


def entry_of(name: str) -> Callable[[Bench], None]:
    return lambda b: b.ask("XDEL", "queue:tasks", task(b, name, "entry"))


def plain(command: str, *args: object) -> Callable[[Bench], None]:
    return lambda b: b.ask(command, *args)  # type: ignore[arg-type]


def grave(bench: Bench) -> str:
    return str(bench.ask("ZRANGE", "settled", 0, 0)[0])


DAMAGE: dict[str, Callable[[Bench], object]] = {
    # What should be there is not.
    "a ready task is in no queue": entry_of(READY),
    "a queue is gone": plain("DEL", "queue:tasks"),
    "a queue was passed over": lambda b: b.ask("XGROUP SETID", "queue:tasks", "workers", "$"),
    "a ready task was read and not leased": lambda b: b.read("queue:tasks", 1),
    "a lease is not in the index": plain("ZREM", "leases", RUNS),
    "a lease is missing": plain("HDEL", f"task:{RUNS}", "leaseId"),
    "the entry of a running task is gone": entry_of(RUNS),
    "a waiting task is in no line": plain("ZREM", "line:t", LINED),
    "a line is gone": plain("DEL", "line:t"),
    "a due task has no time": plain("ZREM", "queue:retry", LATER),
    "a due task forgot when": plain("HDEL", f"task:{LATER}", "due"),
    "a suspended task is not listed": plain("DEL", "queue:suspended"),
    "a settled task is not listed": plain("DEL", "settled"),
    "a task that rests is not listed": plain("DEL", "resting:p"),
    "a status index is gone": plain("DEL", "index:status:PENDING"),
    "a plan's index is gone": plain("DEL", "index:plan:plan"),
    "a tenant's index is gone": plain("DEL", "index:tasks:t"),
    "the errors' index is gone": lambda b: b.ask(
        "DEL", "index:error:" + task(b, PARKED, "error")
    ),
    "the index of a cause is gone": lambda b: b.ask(
        "DEL", "index:suspended:" + task(b, PARKED, "error")
    ),
    "a cause is not counted": plain("DEL", "errors"),
    "a day's index is gone": lambda b: b.ask(
        "DEL", "index:time:" + task(b, RUNS, "createdAt")[:10]
    ),
    "a key is gone": plain("DEL", "key:t|k"),
    "a key will vanish": plain("EXPIRE", "key:t|k", 1_000),
    "a task will vanish": plain("EXPIRE", f"task:{READY}", 1_000),
    "a lock is gone": plain("DEL", "lock:tenant:t"),
    "a tenant has lost its active task": plain("DEL", "index:tenant:t"),
    "a tenant that rests has no active task": plain("DEL", "index:tenant:p"),
    "a number may be given out twice": plain("HSET", "meta", "order", 1),
    "a fence may be given out twice": plain("HSET", "meta", "fence", 1),
    "a tenant's fence is gone": plain("DEL", "fences"),
    # What should not be there is.
    "a foreign entry is in a queue": plain("XADD", "queue:tasks", "*", "taskId", "nobody"),
    "an entry has other fields": plain("XADD", "queue:tasks", "*", "a", "b"),
    "a second entry": plain("XADD", "queue:tasks", "*", "taskId", READY, "type", "x"),
    "an entry of a task that waits in line": plain("XADD", "queue:tasks:o", "*", "taskId", LINED),
    "a lease of nobody": plain("ZADD", "leases", 9e12, "nobody"),
    "a lease of a task that waits": plain("ZADD", "leases", 9e12, READY),
    "a time of a task that waits": plain("ZADD", "queue:retry", 1, READY),
    "a time of nobody": plain("ZADD", "queue:retry", 1, "nobody"),
    "a line has a member of another tenant": plain("ZADD", "line:t", 0, PARKED),
    "a line has a member that is gone": plain("ZADD", "line:t", 0, "nobody"),
    "a tenant of nobody has a line": plain("ZADD", "line:x", 0, "nobody"),
    "one is said to rest that runs": plain("ZADD", "resting:t", 9, RUNS),
    "one is said to be suspended that waits": plain("ZADD", "queue:suspended", 1, READY),
    "one is said to be settled that waits": lambda b: b.ask(
        "ZADD", "settled", 1, grave(b).replace(SETTLED, READY)
    ),
    "one is in a wrong status": plain("ZADD", "index:status:COMPLETED", 0, READY),
    "nobody is in a status": plain("ZADD", "index:status:COMPLETED", 0, "nobody"),
    "one is in a wrong plan": plain("ZADD", "index:plan:other", 0, READY),
    "one is in a wrong day": plain("SADD", "index:time:1999-12-31", READY),
    "one is in a wrong tenant": plain("ZADD", "index:tasks:p", 0, RUNS),
    "one has a wrong error": plain("ZADD", "index:error:abc", 0, READY),
    "one is said to be suspended by an error": plain("ZADD", "index:suspended:abc", 0, READY),
    "one that is tried again is said to be suspended by its error": lambda b: b.ask(
        "ZADD", "index:suspended:" + task(b, LATER, "error"), 0, LATER
    ),
    "a cause of nothing is counted": plain("ZADD", "errors", 3, "abc"),
    "a cause is counted wrong": lambda b: b.ask(
        "ZINCRBY", "errors", 1, task(b, PARKED, "error")
    ),
    "one is at the head that waits in line": plain("ZADD", "back:default", 0, LINED),
    "a checkpoint of one that runs": plain("ZADD", "saved", 0, RUNS),
    "a key of nobody": plain("SET", "key:|old", "nobody 0123"),
    "a lock of one that does not run": plain("SET", "lock:tenant:p", PARKED),
    "a lock of nobody": plain("SET", "lock:tenant:t", "nobody"),
    "a tenant says that a task is active which is gone": plain("SET", "index:tenant:p", "nobody"),
    "a tenant says that another's task is active": plain("SET", "index:tenant:l", READY),
    "a count is wrong": plain("HINCRBY", "counts", "default ready", 3),
    "the counts are gone": plain("DEL", "counts"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
async def test_planted_damage_is_found_and_mended(bench: Bench, damage: str) -> None:
    DAMAGE[damage](bench)
    found = await looked(bench)
    assert found
    assert not any(finding.mended for finding in found)
    assert await looked(bench) == found  # a look changes nothing
    done = await mended(bench)
    assert done
    assert all(finding.mended for finding in done), done
    assert await looked(bench) == []
    await everything_runs(bench)


async def everything_runs(bench: Bench) -> None:
    """All that is not parked comes to its end, each once, with the lease of before or a new one."""
    driver, ran = bench.driver, list[str]()
    bench.clock.advance(10_000)
    await bench.store.tasks.expire(limit=LIMIT, count_crashes=False)
    for _ in range(4):
        await bench.store.tasks.promote(limit=LIMIT)
        for claimed in await driver.claim("w-2"):
            ran.append(claimed.task.id)
            await driver.complete(claimed.task)
    assert sorted(ran) == sorted([LATER, RUNS, LINED, BEHIND, READY, NEXT])
    assert await looked(bench) == []
    assert bench.ask("XLEN", "queue:tasks") == 0


async def test_a_lost_record_is_told_and_its_traces_are_taken_away(bench: Bench) -> None:
    bench.ask("DEL", f"task:{READY}")
    assert {finding.task_id for finding in await looked(bench)} == {READY, None}
    await mended(bench)
    (left,) = await looked(bench)
    assert (left.invariant, left.task_id) == ("I1", READY)
    assert await bench.driver.claim_ids() == [NEXT]


@pytest.mark.parametrize(
    ("name", "field", "value", "invariant"),
    [
        (READY, "failures", "9", "I16"),
        (PARKED, "pauseRequested", "true", "I14"),
        (PARKED, "stageNames", '["odd", "two", "three"]', "I7"),
        (PARKED, "stageNames", "[]", "I7"),
        (PARKED, "lastCompletedStageIndex", "1", "I7"),
    ],
)
async def test_a_broken_rule_is_only_told(
    bench: Bench, name: str, field: str, value: str, invariant: str
) -> None:
    bench.ask("HSET", f"task:{name}", field, value)
    await only_told(bench, invariant)


async def test_a_stage_that_was_not_kept_is_told_and_its_checkpoint_counted(bench: Bench) -> None:
    bench.ask("HSET", f"task:{RUNS}", "lastCompletedStageIndex", "1")
    found = {(finding.invariant, finding.mended) for finding in await mended(bench)}
    assert found == {("I7", False), ("I11", True)}
    assert (await bench.store.views.stats()).checkpoints == 2
    assert {finding.invariant for finding in await looked(bench)} == {"I7"}


async def test_a_key_that_another_owns_is_only_told(bench: Bench) -> None:
    bench.ask("SET", "key:t|k", f"{READY} 0123")
    await only_told(bench, "I10")


@pytest.mark.parametrize("name", [f"payload:{RUNS}", f"payload:{READY}", f"events:{RUNS}"])
async def test_what_is_foreign_beside_a_record_is_only_told(bench: Bench, name: str) -> None:
    bench.ask("DEL", name)
    bench.ask("HSET", name, "their", "own")
    await only_told(bench, "I11")


async def test_a_payload_that_is_gone_is_only_told(bench: Bench) -> None:
    bench.ask("DEL", f"payload:{RUNS}")
    await only_told(bench, "I11")


async def test_a_foreign_key_in_the_place_of_a_record_is_only_told(bench: Bench) -> None:
    bench.ask("SET", "task:foreign", "theirs")
    await only_told(bench, "I11")
    assert bench.ask("GET", "task:foreign") == "theirs"


@pytest.mark.parametrize("name", ["index:status:PENDING", "line:t", "leases"])
async def test_a_foreign_key_in_the_place_of_an_index_is_named(bench: Bench, name: str) -> None:
    bench.ask("DEL", name)
    bench.ask("SET", name, "theirs")
    found = await mended(bench)
    assert [bench.name(name) in finding.message for finding in found] == [True]
    assert bench.ask("GET", name) == "theirs"


async def only_told(bench: Bench, invariant: str) -> None:
    found = await mended(bench)
    assert {(finding.invariant, finding.mended) for finding in found} == {(invariant, False)}
    assert await looked(bench) == found


async def test_two_running_tasks_of_a_tenant_are_told(bench: Bench) -> None:
    bench.ask("ZREM", "line:t", LINED)
    bench.ask("ZADD", "leases", 9e12, LINED)
    bench.ask("HSET", f"task:{LINED}", "place", "leased", "status", "RUNNING", "leaseId", ":x:1:9")
    await mended(bench)
    assert {finding.invariant for finding in await looked(bench)} == {"I2"}


async def test_the_doctor_stops_at_its_limit(bench: Bench) -> None:
    bench.ask("DEL", "index:status:PENDING")
    assert len(await bench.store.admin.doctor(fix=False, limit=3)) == 3


async def test_an_entry_that_is_gone_does_not_stay_pending(bench: Bench) -> None:
    bench.ask("XADD", "queue:tasks", "9999999999999-0", "taskId", "nobody")
    bench.read("queue:tasks", LIMIT)
    bench.ask("XDEL", "queue:tasks", "9999999999999-0")
    assert any("still has it" in finding.message for finding in await looked(bench))
    await mended(bench)
    assert await looked(bench) == []
    await everything_runs(bench)


async def test_nobody_is_suspected_while_work_goes_on(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    async with benched(redis_server, redis_namespace) as bench:
        driver, ran = bench.driver, list[str]()
        ids = [
            *await driver.submit_many(150, stages=("a", "b")),
            *await driver.submit_many(150, tenant="t", stages=("a", "b")),
            *await driver.submit_many(50, tenant="u", queue="other"),
        ]

        async def work(worker: str) -> None:
            while some := await driver.claim(worker, limit=3, queues=("default", "other")):
                for claimed in some:
                    ran.append(claimed.task.id)
                    await driver.complete(claimed.task)

        async def examine() -> list[Finding]:
            found: list[Finding] = []
            while len(ran) < len(ids):
                found += await bench.store.admin.doctor(fix=True, limit=LIMIT)
            return found

        async def all_of_it() -> None:
            while len(ran) < len(ids):
                await asyncio.gather(*(work(f"w-{n}") for n in range(4)))

        found, _ = await asyncio.gather(examine(), all_of_it())
        assert found == []
        assert sorted(ran) == sorted(ids)
        assert await looked(bench) == []


async def test_the_sums_of_a_store_that_is_never_quiet_are_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recount, "WALKS", 0)
    assert await looked(bench) == []
    bench.ask("HINCRBY", "counts", "default leased", 2)
    (found,) = await mended(bench)
    assert (found.message, found.mended) == (
        "leased in all queues is counted as 3, but there are 1",
        False,
    )


async def test_a_walk_over_a_restart_is_not_believed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cursor means nothing to the server that came back."""
    runs = iter(f"run-{n}".encode() for n in range(100))

    async def another_run(_: object) -> bytes:
        return next(runs)

    bench.ask("HINCRBY", "counts", "default ready", 3)
    monkeypatch.setattr(recount, "_run", another_run)
    assert await mended(bench) == []
    assert bench.ask("HGET", "counts", "default ready") == "5"


async def test_each_start_of_a_server_has_a_name(start_redis: StartRedis) -> None:
    server = start_redis()
    async with benched(server, "executor") as bench:
        part = bench.store._parts.first
        before = await recount._run(part)
        assert before is not None
        assert await recount._run(part) == before
        server.stop()
        server.start()
        assert await recount._run(part) not in (None, before)


async def test_without_leave_to_ask_who_it_is_the_counts_are_only_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = bench.store._client.many

    async def denied(keys: Any, commands: Any) -> Any:
        if commands[0][0] == "INFO":
            raise StoreUnusable("NOPERM")
        return await many(keys, commands)

    monkeypatch.setattr(bench.store._client, "many", denied)
    bench.ask("HINCRBY", "counts", "default leased", 2)
    (found,) = await mended(bench)
    assert (found.message, found.mended) == (
        "leased in all queues is counted as 3, but there are 1",
        False,
    )


async def test_counts_that_someone_else_has_mended_are_not_mended_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.ask("HINCRBY", "counts", "default ready", 3)
    compare = recount._compare

    async def compare_late(*args: Any) -> Any:
        bench.ask("HINCRBY", "counts", "default ready", -3)
        async for finding in compare(*args):
            yield finding

    monkeypatch.setattr(recount, "_compare", compare_late)
    monkeypatch.setattr(doctor, "ROUNDS", 1)
    await mended(bench)
    assert bench.ask("HGET", "counts", "default ready") == "2"


@pytest.mark.parametrize("table", ["counts", "meta"])
async def test_counts_that_have_changed_since_the_walk_stay(bench: Bench, table: str) -> None:
    field = "default line" if table == "counts" else "writes"
    bench.ask("HINCRBY", "counts", "default ready", 3)
    part = bench.store._parts.first
    before = await recount._read_counts(part)
    walked = await recount._walk_counts(part, walks.at_once)
    bench.ask("HINCRBY", table, field, 1)
    found = [finding async for finding in recount._compare(part, before, walked, True)]
    assert [finding.mended for finding in found] == [False]
    assert bench.ask("HGET", "counts", "default ready") == "5"


async def test_a_repair_that_is_sent_twice_counts_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Topology.ask_owner

    async def twice(topology: Topology, key: Any, commands: Any) -> Any:
        if commands[0][:2] == ("EVALSHA", scripts.RECOUNT.sha):
            await ask(topology, key, commands)
        return await ask(topology, key, commands)

    monkeypatch.setattr(Topology, "ask_owner", twice)
    bench.ask("HINCRBY", "counts", "default ready", 3)
    (found,) = await mended(bench)
    assert found.mended
    assert bench.ask("HGET", "counts", "default ready") == "2"


async def test_a_large_store_is_looked_through_in_pages(bench: Bench) -> None:
    for n in range(12):
        await bench.driver.submit_many(50, tenant=f"u-{n}")
    assert await looked(bench) == []
    bench.ask("DEL", "line:u-3", bench.name("index:tasks:u-7"))
    assert len(await looked(bench)) >= 99
    found = await bench.store.admin.doctor(fix=True, limit=1_000)
    assert all(finding.mended for finding in found)
    assert await looked(bench) == []
