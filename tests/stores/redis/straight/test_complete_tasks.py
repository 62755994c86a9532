"""Completions take the straight path where all is as usual, and leave the same keys."""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.transition import Applied, Stale
from holdfast.stores.redis.straight.transitions import STRAIGHT_MOVES
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.redis.path_comparison import (
    Ways,
    finish_after_loss,
    finish_under_forged_lease,
    on_task,
)

STRAIGHT, LEFT, GENERAL = ["complete_tasks"], ["complete_tasks", "apply"], ["apply"]
LONG, FOREIGN_LETTERS = "x" * 100, "größer"
ONE = ("only",)


async def start(ways: Ways, **fields: Any) -> str:
    task = await ways.compare(lambda d: d.start(**({"stages": ONE} | fields)))
    ways.advance(0.25)
    ways.scripts()
    return str(task.id)


async def complete(ways: Ways, task_id: str, result: object = "ok", **data: object) -> Any:
    ways.scripts()
    return await ways.compare(on_task("finish_stage", task_id, result, **data))


def scripts_of(ways: Ways) -> list[str]:
    writers = {*LEFT, "commit_stages", "apply_with_follow_ups"}
    return [name for name in ways.scripts() if name in writers]


@pytest.mark.parametrize("data", [{}, {"note": "kept"}, {"note": LONG}, {"note": FOREIGN_LETTERS}])
@pytest.mark.parametrize("result", ["ok", None, LONG, FOREIGN_LETTERS])
async def test_a_task_of_one_stage(ways: Ways, result: object, data: dict[str, object]) -> None:
    task_id = await start(ways)
    task = await complete(ways, task_id, result, **data)
    assert task.status is Status.COMPLETED
    assert scripts_of(ways) == STRAIGHT
    detail = await ways.compare(on_task("detail", task_id))
    assert [type(event).__name__ for event in detail.events][-1] == "TaskCompleted"


@pytest.mark.parametrize("result", ["ok", LONG])
async def test_a_task_of_many_stages(ways: Ways, result: object) -> None:
    task_id = await start(ways, stages=("one", "two", "three"), workflow=True)
    for _ in range(2):
        await complete(ways, task_id, result, note="kept")
    task = await complete(ways, task_id, result, note=LONG)
    assert task.status is Status.COMPLETED
    assert scripts_of(ways) == STRAIGHT
    await ways.compare(on_task("detail", task_id))


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "k"},
        {"key": "k", "tenant": "t"},
        {"key": "k", "keep_seconds": 3 * 86_400.0},
        {"plan": "p"},
        {"queue": "mail", "type": "mail.send"},
        {"callback": "https://example.org/told"},
        {"user": {"name": "ada"}, "trace_id": "abc"},
        {"tenant": "t", "queue": "mail"},
        {"tenant": "t", "hold": True},
        {"stages": ("größte",)},
    ],
    ids="-".join,
)
async def test_a_task_that_has_more(ways: Ways, fields: dict[str, Any]) -> None:
    task_id = await start(ways, **fields)
    await complete(ways, task_id)
    assert scripts_of(ways) == STRAIGHT
    await ways.compare(on_task("detail", task_id))


async def test_many_tasks_of_many_kinds_in_one_batch(ways: Ways) -> None:
    kinds: list[dict[str, Any]] = [
        {"stages": ONE},
        {"stages": ONE, "type": "test.other"},
        {"stages": ONE, "tenant": "t"},
        {"stages": ONE, "tenant": "t"},
        {"stages": ONE, "tenant": "alone"},
        {"stages": ("one", "two")},
    ]

    async def submit(driver: StoreDriver) -> None:
        await driver.insert(*(driver.submission(**kinds[n % len(kinds)]) for n in range(80)))

    async def finish(driver: StoreDriver) -> Any:
        claimed = [*await driver.claim("w-1", limit=30), *await driver.claim("w-2")]
        driver.clock.advance(0.125)
        done = [await driver.done(one.task, "x" * n) for n, one in enumerate(claimed)]
        return await driver.store.tasks.apply(done)

    await ways.compare(submit)
    ways.scripts()
    for _ in range(3):
        assert all(isinstance(outcome, Applied) for outcome in await ways.compare(finish))
    sent = scripts_of(ways)
    assert sent[:2] == ["complete_tasks", "commit_stages"]
    assert "apply" not in sent


async def test_workflows_that_end_together(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(3, stages=("one", "two")))

    async def finish(driver: StoreDriver) -> Any:
        tasks = [claimed.task for claimed in await driver.claim()]
        for _ in range(2):
            done = [await driver.done(task) for task in tasks]
            outcomes = await driver.store.tasks.apply(done)
            tasks = [outcome.task for outcome in outcomes if isinstance(outcome, Applied)]
        return tasks

    ended = await ways.compare(finish)
    assert [task.status for task in ended] == [Status.COMPLETED] * 3


async def test_a_large_batch_is_sent_in_parts(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(STRAIGHT_MOVES + 1, stages=ONE))
    ways.scripts()

    async def finish(driver: StoreDriver) -> Any:
        done = [await driver.done(claimed.task) for claimed in await driver.claim()]
        return await driver.store.tasks.apply(done)

    outcomes = await ways.compare(finish)
    assert [outcome.task.status for outcome in outcomes] == [Status.COMPLETED] * len(outcomes)
    assert scripts_of(ways) == STRAIGHT * 2


# -- tenants


async def test_a_line_moves_up(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(3, tenant="t", stages=ONE))
    for _ in range(3):
        task = (await ways.compare(lambda d: d.claim()))[0].task
        await complete(ways, task.id)
        assert scripts_of(ways) == STRAIGHT
    assert await ways.compare(lambda d: d.claim()) == []
    await ways.compare(lambda d: d.tenant("t"))


async def test_the_next_of_a_line_may_be_of_another_queue_and_unreadable(ways: Ways) -> None:
    task_id = await start(ways, tenant="t")
    await ways.compare(lambda d: d.submit(tenant="t", queue="mail", stages=ONE))
    await complete(ways, task_id)
    assert scripts_of(ways) == STRAIGHT
    assert len(await ways.compare(lambda d: d.claim(queues=("mail",)))) == 1


@pytest.mark.parametrize("hold", [False, True])
async def test_a_tenant_with_a_resting_task(ways: Ways, hold: bool) -> None:
    resting = await ways.compare(lambda d: d.suspend_new(tenant="t", stages=ONE, hold=hold))
    younger = await ways.compare(lambda d: d.submit(tenant="t", stages=ONE))
    if hold:
        assert await ways.compare(lambda d: d.claim()) == []
        await ways.compare(lambda d: d.ask(Command.DISCARD, resting))
    task = await ways.compare(lambda d: d.take())
    assert task.id == younger.id
    await complete(ways, task.id)
    assert scripts_of(ways) == STRAIGHT
    await ways.compare(lambda d: d.tenant("t"))


@pytest.mark.parametrize("kind", ["lock:tenant:t", "index:tenant:t", "line:t", "resting:t"])
@pytest.mark.parametrize("damage", [(), ("SET", "somebody"), ("HSET", "of", "another")])
async def test_a_tenant_whose_keys_are_not_as_usual(
    ways: Ways, kind: str, damage: tuple[str, ...]
) -> None:
    task_id = await start(ways, tenant="t")
    ways.damage(kind, *damage)
    await complete(ways, task_id)
    assert scripts_of(ways) == (LEFT if kind.startswith(("lock", "index")) else STRAIGHT)
    ways.damage(kind)
    await ways.mend()


# -- what is not as usual


async def test_a_request_between_is_answered_with_the_record(ways: Ways) -> None:
    task_id = await start(ways)

    async def request_pause_and_complete(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        await driver.ask(Command.PAUSE, done.before)
        return await driver.apply(done)

    outcome = await ways.compare(request_pause_and_complete)
    assert isinstance(outcome, Stale)
    assert outcome.task is not None
    assert outcome.task.pause_requested
    assert scripts_of(ways) == ["apply", *LEFT]
    await complete(ways, task_id)
    assert scripts_of(ways) == GENERAL  # the request is taken back


@pytest.mark.parametrize("again", [False, True])
async def test_a_lost_lease_writes_nothing(ways: Ways, again: bool) -> None:
    step = finish_after_loss(await start(ways), again=again)
    assert isinstance(await ways.compare(step), Stale)
    assert scripts_of(ways) == LEFT


async def test_another_lease_writes_nothing(ways: Ways) -> None:
    step = finish_under_forged_lease(await start(ways))
    assert isinstance(await ways.compare(step), Stale)
    assert scripts_of(ways) == LEFT


@pytest.mark.parametrize("stages", [ONE, ("one", "two")])
async def test_a_repeat_gets_the_first_answer(ways: Ways, stages: tuple[str, ...]) -> None:
    task_id = await start(ways, stages=stages, tenant="t")

    async def complete_twice(driver: StoreDriver) -> Any:
        task = await driver.load(task_id)
        for _ in stages[1:]:
            task = await driver.finish_stage(task)
        done = await driver.done(task)
        return [await driver.apply(done), await driver.apply(done)]

    first, second = await ways.compare(complete_twice)
    assert isinstance(first, Applied)
    assert isinstance(second, Applied)
    assert scripts_of(ways)[-3:] == [*STRAIGHT, *LEFT]


async def test_two_writes_of_one_task_keep_their_order(ways: Ways) -> None:
    task_id = await start(ways)

    async def complete_twice(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        return await driver.store.tasks.apply([done, done])

    outcomes = await ways.compare(complete_twice)
    assert all(isinstance(outcome, Applied) for outcome in outcomes)
    assert scripts_of(ways) == GENERAL


async def test_what_was_left_is_answered_in_its_place(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(3, stages=ONE))

    async def lose_the_second(driver: StoreDriver) -> Any:
        tasks = [claimed.task for claimed in await driver.claim()]
        done = [await driver.done(task) for task in tasks]
        await driver.ask(Command.CANCEL, tasks[1])
        return await driver.store.tasks.apply(done)

    outcomes = await ways.compare(lose_the_second)
    assert [type(outcome).__name__ for outcome in outcomes] == ["Applied", "Stale", "Applied"]


async def test_an_earlier_error_is_taken_away_by_the_general_way(ways: Ways) -> None:
    task_id = await start(ways)
    await ways.compare(on_task("fail", task_id, retry_seconds=1.0))
    ways.advance(1)
    await ways.compare(lambda d: d.store.tasks.promote(limit=10))
    await ways.compare(lambda d: d.take())
    await complete(ways, task_id)
    assert scripts_of(ways) == GENERAL


async def test_a_second_run_after_a_lapse(ways: Ways) -> None:
    task_id = await start(ways, tenant="t")
    await ways.compare(on_task("give_back", task_id))
    await ways.compare(lambda d: d.take("w-2"))
    await complete(ways, task_id)
    assert scripts_of(ways) == STRAIGHT
    await ways.compare(on_task("detail", task_id))


async def test_a_task_that_is_not_kept(ways: Ways) -> None:
    task_id = await start(ways, keep_seconds=0.0, key="k")

    async def finish(driver: StoreDriver) -> Any:
        return await driver.apply(await driver.done(await driver.load(task_id)))

    assert isinstance(await ways.compare(finish), Applied)
    assert scripts_of(ways) == GENERAL


async def test_follow_up_tasks(ways: Ways) -> None:
    task_id = await start(ways)

    async def complete_with_follower(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        return await driver.apply(replace(done, follows=(driver.follower(done.after),)))

    assert isinstance(await ways.compare(complete_with_follower), Applied)
    assert scripts_of(ways) == ["apply_with_follow_ups"]


@pytest.mark.parametrize("flag", ["not_if_moved_on", "not_if_busy", "not_without_checkpoint"])
async def test_conditions(ways: Ways, flag: str) -> None:
    task_id = await start(ways)

    async def complete_if(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        return await driver.apply(replace(done, **{flag: True}))

    await ways.compare(complete_if)
    assert scripts_of(ways) == GENERAL


async def test_an_end_without_a_result(ways: Ways) -> None:
    task_id = await start(ways)
    await ways.compare(on_task("cancel", task_id))
    assert "complete_tasks" not in scripts_of(ways)


@pytest.mark.parametrize("name", ["result", "data", "stage0", "progress"])
async def test_a_field_of_an_earlier_run_is_taken_away(ways: Ways, name: str) -> None:
    task_id = await start(ways)
    ways.ask("HSET", f"task:{task_id}", name, '"old"')
    await complete(ways, task_id, LONG, note=LONG)
    assert scripts_of(ways) == STRAIGHT
    assert ways.straight.ask("HEXISTS", f"task:{task_id}", name) == 0


async def test_a_settled_task_is_rolled_back_and_run_again(ways: Ways) -> None:
    task_id = await start(ways, stages=("one", "two"), tenant="t")
    for _ in range(2):
        await complete(ways, task_id)
    await ways.compare(on_task("roll_back", task_id))
    await ways.compare(on_task("detail", task_id))


# -- keys of other programs, and rights


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        *((kind, ONE) for kind in ("events", "stages", "result", "data", "ckpt", "ckpt:meta")),
        *((kind, ("one", "two")) for kind in ("result", "data", "ckpt", "ckpt:meta")),
    ],
)
async def test_a_key_of_the_task_is_of_another_type(
    ways: Ways, kind: str, stages: tuple[str, ...]
) -> None:
    task_id = await start(ways, stages=stages)
    for _ in stages[1:]:
        await complete(ways, task_id)
    ways.damage(f"{kind}:{task_id}", "SADD", "another")

    async def finish(driver: StoreDriver) -> Any:
        try:
            return await driver.apply(await driver.done(await driver.load(task_id), LONG))
        except SerialisationError:
            return "unreadable"

    await ways.compare(finish)
    ways.damage(f"{kind}:{task_id}")
    await ways.mend()


@pytest.mark.parametrize("status", [Status.RUNNING, Status.COMPLETED])
async def test_an_index_is_of_another_type(
    ways: Ways, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await start(ways)
    ways.damage(f"index:status:{status}", "SET", "another")
    await complete(ways, task_id)
    assert scripts_of(ways) == STRAIGHT
    assert caplog.text.count("holds something of another program") == 2  # on each way once
    ways.damage(f"index:status:{status}")
    await ways.mend()


async def test_a_record_that_is_gone(ways: Ways) -> None:
    task_id = await start(ways)

    done = [await way.driver.done(await way.driver.load(task_id)) for way in ways.both]
    for kind in ("task", "payload"):
        ways.damage(f"{kind}:{task_id}")
    assert await ways.compare(lambda d: d.apply(done[d is ways.general.driver])) == Stale(None)
    await ways.mend()
