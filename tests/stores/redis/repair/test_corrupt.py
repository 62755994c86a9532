"""A record that cannot be read: that task is suspended, and its neighbours go on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import FailureKind
from holdfast.ports import Kept
from holdfast.stores.redis import scripts
from holdfast.stores.redis.repair import salvage
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

LIMIT = 100
DAY = 86_400.0


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


async def waiting_again(bench: Bench, number: int, **fields: Any) -> list[str]:
    """Tasks that were handed back: what was never handed out is run by its first line."""
    ids = await bench.driver.submit_many(number, **fields)
    for claimed in await bench.driver.claim():
        await bench.driver.give_back(claimed.task)
    return ids


async def is_suspended(bench: Bench, task_id: str, named: str) -> None:
    task = await bench.driver.load(task_id)
    assert (task.status, task.place) == (Status.FAILED, Place.PARKED)
    assert task.failure is not None
    assert task.failure.kind is FailureKind.SERIALISATION
    assert named in task.failure.message
    events = await bench.driver.events(task)
    assert events[-1] == "TaskFailed"
    assert (await bench.driver.last_event(task)).version == task.version
    assert await bench.store.admin.doctor(fix=False, limit=LIMIT) == []


BROKEN: dict[str, str | bytes] = {
    "version": "x",
    "order": "1st",
    "stageNames": "[",
    "keepSeconds": "long",
    "retryMax": "x",
    "createdAt": "yesterday",
    "user": "{",
    "hold": "perhaps",
    "type": b"\xff\xfe",
    "traceId": b"\xff",
    "failures": "many",
}


@pytest.mark.parametrize("field", BROKEN)
async def test_a_broken_field_suspends_its_task_and_no_other(bench: Bench, field: str) -> None:
    first, broken, last = await waiting_again(bench, 3)
    bench.ask("HSET", f"task:{broken}", field, BROKEN[field])
    assert await bench.driver.claim_ids() == [first, last]
    await is_suspended(bench, broken, field)
    assert bench.raw("HGET", f"damaged:{broken}", field) == as_bytes(BROKEN[field])


def as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


@pytest.mark.parametrize("field", ["version", "order", "place", "status", "type", "stageNames"])
async def test_a_missing_field_does_so_too(bench: Bench, field: str) -> None:
    first, broken, last = await waiting_again(bench, 3)
    bench.ask("HDEL", f"task:{broken}", field)
    assert await bench.driver.claim_ids() == [first, last]
    await is_suspended(bench, broken, field)


@pytest.mark.parametrize("field", ["stageNames", "keepSeconds", "user", "type"])
async def test_what_its_first_run_does_not_need_is_for_the_doctor(bench: Bench, field: str) -> None:
    driver = bench.driver
    task = await driver.submit(stages=("only",))
    bench.ask("HSET", f"task:{task.id}", field, BROKEN[field])
    (claimed,) = await driver.claim()
    assert (claimed.task.type, claimed.task.stages) == (task.type, task.stages)
    await driver.complete(claimed.task)
    await bench.store.admin.doctor(fix=True, limit=LIMIT)
    assert await bench.store.admin.doctor(fix=False, limit=LIMIT) == []
    assert (await driver.load(task.id)).status is Status.COMPLETED


@pytest.mark.parametrize("status", ["ODD", "COMPLETED"])
async def test_a_status_that_cannot_be_started_does_so_too(bench: Bench, status: str) -> None:
    first, broken, last = await bench.driver.submit_many(3)
    bench.ask("HSET", f"task:{broken}", "status", status)
    assert await bench.driver.claim_ids() == [first, last]
    await is_suspended(bench, broken, "status")


@pytest.mark.parametrize("kind", ["payload", "stages", "data", "ckpt"])
async def test_a_body_of_another_type_does_so_too(bench: Bench, kind: str) -> None:
    driver = bench.driver
    broken = await driver.finish_stage(await driver.start())
    await driver.give_back(broken)
    neighbour = await driver.submit()
    bench.ask("DEL", f"{kind}:{broken.id}")
    bench.ask("SADD", f"{kind}:{broken.id}", "foreign")
    assert await driver.claim_ids() == [neighbour.id]
    assert (await driver.load(broken.id)).suspended


async def test_a_foreign_key_in_the_place_of_the_active_task_keeps_nobody_out(
    bench: Bench,
) -> None:
    task = await bench.driver.submit(tenant="t")
    bench.ask("DEL", f"task:{task.id}")
    bench.ask("SET", f"task:{task.id}", "foreign")
    following = await bench.driver.submit(tenant="t")
    assert await bench.driver.claim_ids() == [following.id]
    bench.ask("DEL", f"task:{task.id}")
    await bench.store.admin.doctor(fix=True, limit=LIMIT)


@pytest.mark.parametrize("place", ["odd", "parked"])
async def test_what_no_claim_can_make_sense_of_is_for_the_doctor(bench: Bench, place: str) -> None:
    first, broken, last = await bench.driver.submit_many(3)
    bench.ask("HSET", f"task:{broken}", "place", place)
    assert await bench.driver.claim_ids() == [first, last]
    found = await bench.store.admin.doctor(fix=True, limit=LIMIT)
    assert broken in {finding.task_id for finding in found}
    await is_suspended(bench, broken, "place")


async def test_what_can_be_read_is_kept_and_the_task_can_be_retried(bench: Bench) -> None:
    driver = bench.driver
    task = await driver.start(tenant="t", key="k", plan="p", user={"name": "ada"}, trace_id="tr")
    task = await driver.fail(await driver.finish_stage(task, order="o-1"))
    bench.ask("HSET", f"task:{task.id}", "keepSeconds", "x", "version", "x")
    bench.clock.advance(100)
    assert (await bench.store.tasks.promote(limit=LIMIT)).count == 0
    await is_suspended(bench, task.id, "keepSeconds")
    kept = await driver.load(task.id)
    for name in "type tenant key plan user trace_id stages created_at order last_completed".split():
        assert getattr(kept, name) == getattr(task, name), name
    assert kept.version == task.version + 1  # from the newest event
    await driver.ask(Command.RETRY, kept)
    again = await driver.take()
    assert again.last_completed == 0
    assert (await driver.complete(again)).settled
    assert await bench.store.admin.doctor(fix=False, limit=LIMIT) == []


@pytest.mark.parametrize("place", [Place.READY, Place.LEASED, Place.LATER])
@pytest.mark.parametrize("field", ["version", "stageNames"])
async def test_its_tenants_line_goes_on(bench: Bench, place: Place, field: str) -> None:
    driver = bench.driver
    active = await driver.give_back(await driver.start(tenant="t"))
    if place is not Place.READY:
        active = await driver.take()
    if place is Place.LATER:
        active = await driver.fail(active)
    assert active.place is place
    behind = await driver.submit_many(2, tenant="t", stages=("only",))
    bench.ask("HSET", f"task:{active.id}", field, "{")
    bench.clock.advance(100)
    await bench.store.tasks.expire(limit=LIMIT, count_crashes=True)
    await bench.store.tasks.promote(limit=LIMIT)
    ran = []
    for _ in range(4):
        for claimed in await driver.claim():
            ran.append(claimed.task.id)
            await driver.complete(claimed.task)
    assert ran == behind
    await is_suspended(bench, active.id, field)


async def test_a_task_that_holds_its_line_holds_it_when_it_is_suspended_so(bench: Bench) -> None:
    driver = bench.driver
    (active,) = await waiting_again(bench, 1, tenant="t", hold=True)
    await driver.submit(tenant="t")
    bench.ask("HSET", f"task:{active}", "retryMax", "x")
    assert await driver.claim_ids() == []
    await is_suspended(bench, active, "retryMax")
    assert (await driver.tenant("t")).waiting == 1


async def test_an_unreadable_head_of_a_line_lets_the_next_through(bench: Bench) -> None:
    driver = bench.driver
    _, broken, third = [await driver.submit(tenant="t", stages=("only",)) for _ in range(3)]
    bench.ask("HSET", f"task:{broken.id}", "version", "x")
    await driver.complete(await driver.take())
    assert await driver.claim_ids() == [third.id]
    await bench.store.admin.doctor(fix=True, limit=LIMIT)
    await is_suspended(bench, broken.id, "version")


async def test_a_foreign_key_in_the_place_of_a_record_is_left_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, broken, last = await bench.driver.submit_many(3)
    bench.ask("DEL", f"task:{broken}")
    bench.ask("SET", f"task:{broken}", "theirs")
    claimed = await bench.driver.claim()
    assert [one.task.id for one in claimed] == [first, last]
    assert bench.name(f"task:{broken}") in caplog.text
    assert bench.ask("GET", f"task:{broken}") == "theirs"
    for one in claimed:
        await bench.driver.complete(one.task)
    assert bench.ask("XLEN", "queue:tasks") == 0


async def test_events_of_a_wrong_type_are_moved_out_of_the_way(bench: Bench) -> None:
    driver = bench.driver
    first, broken, last = await driver.submit_many(3, keep_seconds=1)
    bench.ask("DEL", f"events:{broken}")
    bench.ask("SET", f"events:{broken}", "theirs")
    for claimed in await driver.claim():
        if claimed.task.id in (first, last):
            await driver.complete(claimed.task)
    bench.clock.advance(100)
    await bench.store.tasks.expire(limit=LIMIT, count_crashes=True)
    await is_suspended(bench, broken, "events")
    assert bench.ask("GET", f"damaged:{broken}:events") == "theirs"
    await driver.ask(Command.DISCARD, await driver.load(broken))
    bench.clock.advance(3 * DAY)
    await bench.store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=9, dry_run=False)
    await bench.store.admin.prune(Kept.TOMBSTONES, older_than_seconds=0, limit=9, dry_run=False)
    assert not {name for name in bench.names() if broken in name}


async def test_the_record_as_it_was_goes_with_the_task(bench: Bench) -> None:
    driver = bench.driver
    (task,) = await waiting_again(bench, 1, keep_seconds=1)
    bench.ask("HSET", f"task:{task}", "user", "{")
    assert await driver.claim_ids() == []
    assert bench.ask("HGET", f"damaged:{task}", "user") == "{"
    await driver.ask(Command.DISCARD, await driver.load(task))
    bench.clock.advance(3 * DAY)
    await bench.store.admin.prune(Kept.TASKS, older_than_seconds=0, limit=9, dry_run=False)
    assert f"damaged:{task}" not in bench.names()


async def test_a_task_without_its_payload_is_suspended(bench: Bench) -> None:
    first, broken, last = await bench.driver.submit_many(3)
    bench.ask("DEL", f"payload:{broken}")
    assert await bench.driver.claim_ids() == [first, last]
    task = await bench.driver.load(broken)
    assert task.suspended
    assert task.failure is not None
    assert "payload" in task.failure.message


async def test_a_stage_that_cannot_be_read_is_named(bench: Bench) -> None:
    driver = bench.driver
    task = await driver.finish_stage(await driver.start())
    bench.ask("HSET", f"stages:{task.id}", "0", "{")
    bench.clock.advance(100)
    await bench.store.tasks.expire(limit=LIMIT, count_crashes=True)
    assert await driver.claim_ids() == []
    failed = await driver.load(task.id)
    assert failed.failure is not None
    assert failed.failure.kind is FailureKind.SERIALISATION
    assert "stages" in failed.failure.message


async def test_a_record_that_changed_since_it_was_read_is_left_alone(bench: Bench) -> None:
    task = await bench.driver.submit()
    part = bench.store._parts.first
    bench.ask("HSET", f"task:{task.id}", "hold", "perhaps")
    remains = await salvage._read(part, task.id)
    assert remains is not None
    bench.ask("HSET", f"task:{task.id}", "hold", "true")
    await bench.driver.take()
    before = bench.ask("HGETALL", f"task:{task.id}")
    assert await salvage._mend(part, task.id, remains, bench.clock.now()) == b"changed"
    assert bench.ask("HGETALL", f"task:{task.id}") == before


async def test_the_doctor_leaves_an_unreadable_task_to_the_worker_that_has_it(
    bench: Bench,
) -> None:
    driver = bench.driver
    running = await driver.start(tenant="t")
    await driver.submit(tenant="t")
    bench.ask("HSET", f"task:{running.id}", "stageNames", "{")
    (found,) = await bench.store.admin.doctor(fix=True, limit=LIMIT)
    assert (found.task_id, found.mended) == (running.id, False)
    assert (await driver.tenant("t")).locked_by == running.id
    assert await driver.claim_ids() == []


async def test_the_doctor_suspends_an_unreadable_task_that_rests(bench: Bench) -> None:
    driver = bench.driver
    resting = await driver.suspend(await driver.start(tenant="t"))
    bench.ask("HSET", f"task:{resting.id}", "stageNames", "{")
    (found,) = await bench.store.admin.doctor(fix=True, limit=LIMIT)
    assert (found.task_id, found.mended) == (resting.id, True)
    await is_suspended(bench, resting.id, "stageNames")


# -- reports that come late, or twice


async def reported(bench: Bench, task_id: str) -> list[str]:
    return await salvage.set_aside(bench.store._parts.first, [task_id.encode()])


async def failures(bench: Bench, task_id: str) -> int:
    return (await bench.driver.events(await bench.driver.load(task_id))).count("TaskFailed")


@pytest.mark.parametrize("place", [*Place])
async def test_a_healthy_task_that_was_reported_is_left_alone(bench: Bench, place: Place) -> None:
    driver = bench.driver
    if place is Place.LINE:
        await driver.start(tenant="t")
    task = await driver.submit(tenant="t", held=place is Place.HELD)
    if place not in (Place.HELD, Place.READY, Place.LINE):
        task = await driver.take()
    if place is Place.LATER:
        await driver.fail(task)
    elif place is Place.PARKED:
        await driver.suspend(task)
    elif place is Place.SETTLED:
        await driver.complete(task)
    before = bench.ask("HGETALL", f"task:{task.id}"), await driver.events(task)
    assert before[0]["place"] == place
    assert await reported(bench, task.id) == []
    assert (bench.ask("HGETALL", f"task:{task.id}"), await driver.events(task)) == before
    assert await bench.store.admin.doctor(fix=False, limit=LIMIT) == []


@pytest.mark.parametrize("damage", ["field", "payload", "stages", "events"])
async def test_many_who_report_it_suspend_it_once(bench: Bench, damage: str) -> None:
    driver = bench.driver
    task = await driver.finish_stage(await driver.start())
    if damage == "field":
        bench.ask("HSET", f"task:{task.id}", "user", "{")
    else:
        bench.ask("SET", f"{damage}:{task.id}", "theirs")
        bench.ask("DEL", "payload:" + (task.id if damage == "payload" else ""))
    done = await asyncio.gather(*(reported(bench, task.id) for _ in range(5)))
    assert [one for one in done if one] == [[task.id]]
    assert await reported(bench, task.id) == []
    assert await failures(bench, task.id) == 1


async def test_a_sweeper_that_comes_after_the_retry_leaves_the_running_task_alone(
    bench: Bench,
) -> None:
    driver = bench.driver
    task = await driver.fail(await driver.start(tenant="t"))
    bench.ask("HSET", f"task:{task.id}", "version", "x")
    bench.clock.advance(100)
    await bench.store.tasks.promote(limit=LIMIT)
    await is_suspended(bench, task.id, "version")
    await driver.ask(Command.RETRY, await driver.load(task.id))
    running = await driver.take()
    assert await reported(bench, task.id) == []
    assert (await driver.complete(running)).settled


async def test_a_lost_answer_suspends_it_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await bench.driver.submit()
    bench.ask("HSET", f"task:{task.id}", "user", "{")
    part = bench.store._parts.first
    call = part.call

    async def twice(script: Any, *args: Any, **options: Any) -> Any:
        if script is scripts.SALVAGE:
            assert await call(script, *args, **options) == b"done"
        return await call(script, *args, **options)

    monkeypatch.setattr(part, "call", twice)
    await reported(bench, task.id)
    assert await failures(bench, task.id) == 1
    await is_suspended(bench, task.id, "user")


# -- what has ended stays so


OF_THE_ENDED: dict[str, str | bytes] = BROKEN | {
    "place": "odd",
    "status": "ODD",
    "settledAt": "then",
    "statusSince": "then",
    "updatedAt": "then",
    "queue": b"\xff",
    "tenantId": b"\xff",
}


@pytest.mark.parametrize("field", OF_THE_ENDED)
async def test_a_settled_task_stays_settled_and_can_be_pruned(bench: Bench, field: str) -> None:
    driver = bench.driver
    ended = await driver.complete(await driver.start(tenant="t", key="k", keep_seconds=5))
    events = await driver.events(ended)
    bench.ask("HSET", f"task:{ended.id}", field, OF_THE_ENDED[field])
    lasts = bench.ask("PTTL", f"task:{ended.id}")
    found = await bench.store.admin.doctor(fix=True, limit=LIMIT)
    assert (ended.id, True) in {(finding.task_id, finding.mended) for finding in found}
    left = [finding.invariant for finding in await bench.store.admin.doctor(fix=False, limit=LIMIT)]
    assert left == (["I7"] if field == "stageNames" else [])  # nobody knows which stages they were
    kept = await driver.load(ended.id)
    assert (kept.status, kept.place) == (Status.COMPLETED, Place.SETTLED)
    assert kept.version == ended.version
    assert await driver.events(kept) == events
    assert 0 < bench.ask("PTTL", f"task:{ended.id}") <= lasts
    assert bench.raw("HGET", f"damaged:{ended.id}", field) == as_bytes(OF_THE_ENDED[field])
    assert bench.ask("HLEN", f"damaged:{ended.id}") == 1
    bench.clock.advance(100 * DAY)
    for kind in (Kept.TASKS, Kept.TOMBSTONES):
        await bench.store.admin.prune(kind, older_than_seconds=0, limit=9, dry_run=False)
    assert bench.ask("EXISTS", f"task:{ended.id}", bench.name(f"damaged:{ended.id}")) == 0


async def test_a_name_that_is_no_text_is_put_aside(bench: Bench) -> None:
    driver = bench.driver
    ended = await driver.complete(await driver.start(tenant="t"))
    waits = await driver.submit()
    for task in (waits, ended):
        bench.ask("HSET", f"task:{task.id}", b"\xff", "x")
    await bench.store.admin.doctor(fix=True, limit=LIMIT)
    assert await bench.store.admin.doctor(fix=False, limit=LIMIT) == []
    assert (await driver.load(ended.id)).status is Status.COMPLETED
    assert bench.raw("HGET", f"damaged:{ended.id}", b"\xff") == b"x"
