"""Reads of Redis beyond the contract: what is damaged, what is bounded, which index is walked."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import redis

from holdfast.domain.task import decide
from holdfast.domain.task.events import name_of
from holdfast.domain.task.placement import Next
from holdfast.domain.task.state import SUSPENDED, Command, Status
from holdfast.domain.task.transition import Submission, Transition
from holdfast.ports import Filter
from holdfast.stores.redis import scripts
from holdfast.stores.redis.admin import audit_chain
from holdfast.stores.redis.client import address
from holdfast.stores.redis.client.client import RedisClient, Script
from holdfast.stores.redis.keys import KeyNames
from holdfast.stores.redis.partition import BATCH, Partition, Partitions, RetentionTerms
from holdfast.stores.redis.tasks import store as tasks
from holdfast.stores.redis.tasks.claims import PartitionClaim, claim_from
from holdfast.stores.redis.views import find
from holdfast.stores.redis.views import store as views
from holdfast.stores.redis.views.counts import stats
from tests.support.redis.redis_records import NOW, entry, made
from tests.support.redis.redis_stores import benched
from verify.servers import RedisServer


@pytest_asyncio.fixture
async def part(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Partition]:
    client = RedisClient(address.parse(redis_server.url))
    await client.open()
    yield Partition(client, KeyNames(redis_namespace), RetentionTerms(), lambda: (NOW, NOW))
    await client.close()


@pytest.fixture
def client(redis_server: RedisServer) -> redis.Redis:
    return redis_server.client()


def submission(task_id: str, **fields: Any) -> Submission:
    return decide.submit(made(task_id, **fields), b"null", "digest", held=False)


def asked(request: str, lease_seconds: float) -> PartitionClaim:
    return PartitionClaim(
        worker="w", request=request, queues=["default"], lease_seconds=lease_seconds
    )


async def submit(part: Partition, *names: str, **fields: Any) -> None:
    await tasks.insert(part, [submission(name, **fields) for name in names], 10_000)


def warned(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


async def damage(part: Partition, client: redis.Redis) -> None:
    """Of five tasks only the first and the last can be read."""
    await submit(part, "a", "b", "c", "d", "e")
    client.hset(part.keys("task", "b"), "createdAt", "yesterday")
    client.hdel(part.keys("task", "c"), "type", "stageNames")
    client.delete(part.keys("task", "d"))
    client.rpush(part.keys("task", "d"), "not a hash")


async def test_a_damaged_record_hides_none_of_its_neighbours(
    part: Partition, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await damage(part, client)
    found = await views.load(part, ["a", "b", "c", "d", "e", "unknown"])
    assert [task and task.id for task in found] == ["a", None, None, None, "e", None]
    said = warned(caplog)
    assert len(said) == 3
    assert all("holdfast doctor" in text for text in said)


async def test_damaged_records_are_left_out_of_a_page(part: Partition, client: redis.Redis) -> None:
    await damage(part, client)
    page = await find.find(part, Filter(), 10, None)
    assert ([task.id for task in page.tasks], page.cursor) == (["e", "a"], None)
    page = await find.find(part, Filter(), 1, None)
    assert ([task.id for task in page.tasks], page.cursor) == (["e"], "e")


async def test_damaged_records_have_no_detail_and_without_a_status_no_peek(
    part: Partition, client: redis.Redis
) -> None:
    await damage(part, client)
    client.hset(part.keys("task", "b"), "status", "ODD")
    client.hdel(part.keys("task", "c"), "status")
    peeks = await views.peek(part, ["a", "b", "c", "d"])
    assert [peek is not None for peek in peeks] == [True, False, False, False]
    assert [await views.detail(part, task_id) for task_id in "bcd"] == [None] * 3


async def test_a_record_that_ran_out_of_time_is_not_there_and_nobody_is_warned(
    part: Partition, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await submit(part, "a", "b")
    client.delete(part.keys("task", "a"))
    assert (await views.load(part, ["a"])) == [None]
    assert [task.id for task in (await find.find(part, Filter(), 10, None)).tasks] == ["b"]
    assert (await views.detail(part, "a"), await views.checkpoint(part, "a")) == (None, None)
    assert not warned(caplog)


async def test_a_detail_shows_what_is_left_when_a_part_of_it_is_damaged(
    part: Partition, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await submit(part, "a")
    client.set(part.keys("stages", "a"), "not a hash")
    client.rpush(part.keys("events", "a"), "2\nr\nnonsense", "nonsense")
    record = part.keys("task", "a")
    for name, text in (("place", "leased"), ("leaseId", ":x:1:9"), ("progress", "nonsense")):
        client.hset(record, name, text)
    found = await views.detail(part, "a")
    assert found is not None
    assert (found.payload, found.stages, found.progress) == (b"null", (), None)
    assert [name_of(event) for event in found.events] == ["TaskCreated"]
    assert len(warned(caplog)) == 4


async def test_an_unreadable_audit_hides_no_other(part: Partition, client: redis.Redis) -> None:
    await audit_chain.write_audit(part, entry("a", NOW))
    client.rpush(part.keys("audit"), "nonsense")
    await audit_chain.write_audit(part, entry("b", NOW))
    found = await audit_chain.audits(Partitions([part]), 10, 0)
    assert [one.task_id for one in found] == ["b", "store", "a"]
    assert (found[1].command, found[1].by.reason) == ("unreadable", "nonsense")
    assert await audit_chain.audits(Partitions([part]), 10, 3) == []


async def test_a_look_is_bounded_and_goes_on_at_its_cursor(
    part: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "LOOK_LIMIT", 120)
    names = [f"task-{n:03}" for n in range(300)]
    await submit(part, *names)
    await submit(part, "task-000-rare", type="rare")
    seen: list[str] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        page = await find.find(part, Filter(type="rare"), 2, cursor)
        seen += [task.id for task in page.tasks]
        pages, cursor = pages + 1, page.cursor
    assert (seen, pages) == (["task-000-rare"], 3)


RARE = {
    "type": Filter(type="rare"),
    "tenant and type": Filter(tenant="t", type="rare"),
    "queue": Filter(queue="rare"),
    "status": Filter(statuses=(Status.PENDING,), type="rare"),
    "plan and type": Filter(plan="p", type="rare"),
    "time": Filter(updated_after=NOW - 1, updated_before=NOW + 1),
}


@pytest.mark.parametrize("asked_for", RARE)
async def test_of_many_that_do_not_match_no_whole_record_is_read(
    part: Partition, monkeypatch: pytest.MonkeyPatch, asked_for: str
) -> None:
    common = {"tenant": "t", "plan": "p", "queue": "common", "updated_at": NOW - 10}
    await submit(part, "a-1", "a-2", type="rare", tenant="t", plan="p", queue="rare")
    await submit(part, *(f"b-{n:03}" for n in range(300)), **common)
    loaded: list[str] = []
    call_in_batches = part.call_in_batches

    async def noted(script: Script, ids: Sequence[str]) -> Any:
        assert script is scripts.LOAD
        loaded.extend(ids)
        return await call_in_batches(script, ids)

    monkeypatch.setattr(part, "call_in_batches", noted)
    page = await find.find(part, RARE[asked_for], 10, None)
    assert [task.id for task in page.tasks] == ["a-2", "a-1"]
    assert page.cursor is None
    assert loaded[-2:] == ["a-2", "a-1"]
    assert len(loaded) <= BATCH + 2


async def test_what_is_left_out_of_a_record_is_found_by_what_it_stands_for(
    part: Partition,
) -> None:
    await submit(part, "a")
    await submit(part, *(f"b-{n:03}" for n in range(200)), queue="other", updated_at=NOW - 10)
    for where in (Filter(queue="default"), Filter(updated_after=NOW - 1)):
        page = await find.find(part, where, 10, None)
        assert [task.id for task in page.tasks] == ["a"]


async def test_an_unreadable_task_among_those_that_do_not_match_is_told(
    part: Partition, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await submit(part, "a", type="rare")
    await submit(part, *(f"b-{n:03}" for n in range(200)))
    client.delete(part.keys("task", "b-010"))
    client.set(part.keys("task", "b-010"), "not a hash")
    page = await find.find(part, Filter(type="rare"), 10, None)
    assert [task.id for task in page.tasks] == ["a"]
    assert len(warned(caplog)) == 1


async def test_more_ids_than_one_script_takes_are_loaded_in_order(part: Partition) -> None:
    names = [f"task-{n:03}" for n in range(250)]
    await submit(part, *names)
    assert [task and task.id for task in await views.load(part, names[::-1])] == names[::-1]
    assert all(await views.peek(part, names))
    assert len((await find.find(part, Filter(), 250, None)).tasks) == 250


async def test_the_head_of_a_queue_is_what_the_next_claim_hands_out(part: Partition) -> None:
    await submit(part, "a", "b", "c")
    for expected in ("a", "b", "c"):
        assert (await stats(part)).heads["default"].id == expected
        [claimed], _ = await claim_from(part, asked(expected, -1), limit=1)
        assert claimed.task.id == expected
    assert (await stats(part)).heads == {}
    await tasks.expire(part, 10, alone_from=None)
    [claimed], _ = await claim_from(part, asked("x", 30), limit=1)
    assert (await stats(part)).heads["default"].id != claimed.task.id


@pytest.mark.parametrize(
    "where",
    [
        Filter(tenant="t"),
        Filter(plan="p"),
        Filter(statuses=(Status.PENDING,), tenant="t"),
        Filter(tenant="t", plan="p", queue="default"),
    ],
)
async def test_whichever_index_is_the_narrowest_the_same_is_found(
    part: Partition, where: Filter
) -> None:
    await submit(part, "a", "b", tenant="t", plan="p")
    await submit(part, "c", "d", "e")
    page = await find.find(part, where, 10, None)
    assert [task.id for task in page.tasks] == ["b", "a"]


async def suspend(part: Partition, task_id: str, at: float) -> None:
    (task,) = await views.load(part, [task_id])
    assert task is not None
    changes = {"status": Status.FAILED, "version": task.version + 1, "updated_at": at}
    after = msgspec.structs.replace(task, **changes)
    parked = Transition(before=task, after=after, request="r", next=Next.PARKED, events=())
    await tasks.apply(part, [parked])


@pytest.mark.parametrize("dated_limit", [0, 100])
async def test_suspended_tasks_are_found_by_time_with_and_without_the_index_of_times(
    part: Partition, monkeypatch: pytest.MonkeyPatch, dated_limit: int
) -> None:
    monkeypatch.setattr(find, "DATED_LIMIT", dated_limit)
    names = ["b", "a", "d", "c", "e"]
    await submit(part, *names)
    for n, name in enumerate(names):
        await suspend(part, name, NOW + n + 0.123_456_7)  # finer than a record tells it
    after, before = NOW + 0.5, NOW + 3.5
    where = Filter(statuses=tuple(SUSPENDED), updated_after=after, updated_before=before)
    first = await find.find(part, where, 2, None)
    assert ([task.id for task in first.tasks], first.cursor) == (["d", "c"], "c")
    second = await find.find(part, where, 2, first.cursor)
    assert ([task.id for task in second.tasks], second.cursor) == (["a"], None)


async def test_what_ran_straight_through_tells_its_events_from_the_record_and_then_in_the_list(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    async with benched(redis_server, redis_namespace) as bench:
        driver = bench.driver
        task = await driver.complete(await driver.start(stages=("only",)))
        assert bench.ask("EXISTS", f"events:{task.id}") == 0
        told = await driver.events(task)
        assert told == [
            *("TaskCreated", "TaskStarted", "StageStarted", "StageCompleted", "TaskCompleted")
        ]
        before = await bench.store.views.detail(task.id)
        again = await driver.ask(Command.ROLLBACK, task)
        after = await bench.store.views.detail(task.id)
        assert before is not None
        assert after is not None
        assert after.events[:-1] == before.events
        assert [event.version for event in after.events] == [1, 2, 3, 3, 3, 4]
        assert bench.ask("LLEN", f"events:{task.id}") == 3
        assert again.version == 4


async def test_a_peek_is_answered_from_the_tombstone(part: Partition) -> None:
    await submit(part, "a")
    (task,) = await views.load(part, ["a"])
    assert task is not None
    changes = {"status": Status.COMPLETED, "version": 2, "settled_at": NOW}
    after = msgspec.structs.replace(task, **changes)
    result = '["ä"]'.encode()
    gone = Transition(
        before=task, after=after, request="r", next=Next.GONE, events=(), result=result
    )
    await tasks.apply(part, [gone])
    assert await views.load(part, ["a"]) == [None]
    (peek,) = await views.peek(part, ["a"])
    assert peek is not None
    assert (peek.status, peek.result) == (Status.COMPLETED, result)
