"""Commits of stages take the straight path where all is as usual, and leave the same keys."""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.state import Command
from holdfast.domain.task.transition import Applied, Stale
from holdfast.testing.contract.drivers.store_driver import STAGES, StoreDriver
from tests.support.redis.path_comparison import (
    Ways,
    finish_after_loss,
    finish_under_forged_lease,
    on_task,
)

STRAIGHT, LEFT, GENERAL = ["commit_stages"], ["commit_stages", "apply"], ["apply"]
LONG, FOREIGN_LETTERS = "x" * 100, "größer"


async def start(ways: Ways, **fields: Any) -> str:
    task = await ways.compare(lambda d: d.start(**fields))
    ways.advance(0.25)
    ways.scripts()
    return str(task.id)


async def commit(ways: Ways, task_id: str, result: object = "ok", **data: object) -> Any:
    ways.scripts()
    return await ways.compare(on_task("finish_stage", task_id, result, **data))


def scripts_of(ways: Ways) -> list[str]:
    return [name for name in ways.scripts() if name in {*LEFT, "apply_with_follow_ups"}]


@pytest.mark.parametrize("data", [{}, {"note": "kept"}, {"note": LONG}, {"note": FOREIGN_LETTERS}])
@pytest.mark.parametrize("result", ["ok", None, LONG, FOREIGN_LETTERS])
async def test_stages_one_by_one(ways: Ways, result: object, data: dict[str, object]) -> None:
    task_id = await start(ways, tenant="t", key="k", plan="p")
    for index in range(len(STAGES) - 1):
        task = await commit(ways, task_id, result, **data)
        assert task.last_completed == index
        assert scripts_of(ways) == STRAIGHT
        ways.advance(0.5)
    await ways.compare(on_task("detail", task_id))
    await ways.compare(on_task("checkpoint", task_id))
    await ways.compare(on_task("complete", task_id))


async def test_many_tasks_of_many_kinds_in_one_batch(ways: Ways) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"type": "test.other", "stages": ("one", "größte")},
        {"queue": "mail"},
        {"workflow": True, "hold": True},
    ]

    async def submit(driver: StoreDriver) -> None:
        for n in range(20):
            await driver.insert(driver.submission(**kinds[n % len(kinds)]))

    async def commit_all(driver: StoreDriver) -> Any:
        claimed = await driver.claim(queues=("default", "mail"))
        driver.clock.advance(0.125)
        done = [await driver.done(one.task, "x" * n) for n, one in enumerate(claimed)]
        return await driver.store.tasks.apply(done)

    await ways.compare(submit)
    ways.scripts()
    outcomes = await ways.compare(commit_all)
    assert [outcome.task.last_completed for outcome in outcomes] == [0] * 20
    assert scripts_of(ways) == STRAIGHT


async def test_the_end_of_a_renewed_lease_is_answered(ways: Ways) -> None:
    task_id = await start(ways)

    async def renew_and_commit(driver: StoreDriver) -> Any:
        task = await driver.load(task_id)
        done = await driver.done(task)
        await driver.renew(task, lease_seconds=77.0)
        return await driver.apply(done)

    outcome = await ways.compare(renew_and_commit)
    assert outcome.task.lease.until == ways.straight.clock.times()[0] + 77.0
    assert scripts_of(ways) == STRAIGHT


# -- what is not as usual


@pytest.mark.parametrize("command", [Command.PAUSE, Command.CANCEL])
async def test_a_request_between_is_answered_with_the_record(ways: Ways, command: Command) -> None:
    task_id = await start(ways)

    async def request_and_commit(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        await driver.ask(command, done.before)
        return await driver.apply(done)

    assert isinstance(await ways.compare(request_and_commit), Stale)
    assert scripts_of(ways) == ["apply", *LEFT]
    await commit(ways, task_id)
    assert scripts_of(ways) == STRAIGHT  # the request stays


@pytest.mark.parametrize("again", [False, True])
async def test_a_lost_lease_writes_nothing(ways: Ways, again: bool) -> None:
    step = finish_after_loss(await start(ways), again=again)
    assert isinstance(await ways.compare(step), Stale)
    assert scripts_of(ways) == LEFT


async def test_another_lease_writes_nothing(ways: Ways) -> None:
    step = finish_under_forged_lease(await start(ways))
    assert isinstance(await ways.compare(step), Stale)
    assert scripts_of(ways) == LEFT


async def test_a_repeat_gets_the_first_answer(ways: Ways) -> None:
    task_id = await start(ways, tenant="t")

    async def commit_twice(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        return [await driver.apply(done), await driver.apply(done)]

    first, second = await ways.compare(commit_twice)
    assert isinstance(first, Applied)
    assert isinstance(second, Applied)
    assert scripts_of(ways) == [*STRAIGHT, *LEFT]


async def test_two_writes_of_one_task_keep_their_order(ways: Ways) -> None:
    task_id = await start(ways)

    async def commit_twice(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        return await driver.store.tasks.apply([done, done])

    outcomes = await ways.compare(commit_twice)
    assert all(isinstance(outcome, Applied) for outcome in outcomes)
    assert scripts_of(ways) == GENERAL


async def test_what_was_left_is_answered_in_its_place(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(3))

    async def lose_the_second(driver: StoreDriver) -> Any:
        tasks = [claimed.task for claimed in await driver.claim()]
        done = [await driver.done(task) for task in tasks]
        await driver.ask(Command.CANCEL, tasks[1])
        return await driver.store.tasks.apply(done)

    outcomes = await ways.compare(lose_the_second)
    assert [type(outcome).__name__ for outcome in outcomes] == ["Applied", "Stale", "Applied"]


@pytest.mark.parametrize(("version", "sent"), [("1", LEFT), ("0", STRAIGHT), ("many", LEFT)])
async def test_a_checkpoint_that_is_newer(ways: Ways, version: str, sent: list[str]) -> None:
    task_id = await start(ways)
    ways.damage(f"ckpt:meta:{task_id}", "HSET", "version", version)

    async def try_commit(driver: StoreDriver) -> Any:
        try:
            return await driver.apply(await driver.done(await driver.load(task_id)))
        except SerialisationError:
            return "unreadable"

    await ways.compare(try_commit)
    assert scripts_of(ways) == sent
    ways.damage(f"ckpt:meta:{task_id}")
    await ways.mend()


async def test_an_earlier_error_is_taken_away_by_the_general_way(ways: Ways) -> None:
    task_id = await start(ways)
    await ways.compare(on_task("fail", task_id, retry_seconds=1.0))
    ways.advance(1)
    await ways.compare(lambda d: d.store.tasks.promote(limit=10))
    await ways.compare(lambda d: d.take())
    await commit(ways, task_id)
    assert scripts_of(ways) == GENERAL
    await commit(ways, task_id)
    assert scripts_of(ways) == STRAIGHT


async def test_a_second_holder_goes_on(ways: Ways) -> None:
    task_id = await start(ways, tenant="t")
    await commit(ways, task_id)
    await ways.compare(on_task("give_back", task_id))
    await ways.compare(lambda d: d.take("w-2"))
    await commit(ways, task_id)
    assert scripts_of(ways) == STRAIGHT
    await ways.compare(on_task("detail", task_id))


async def test_follow_up_tasks(ways: Ways) -> None:
    task_id = await start(ways)

    async def commit_with_follower(driver: StoreDriver) -> Any:
        done = await driver.done(await driver.load(task_id))
        return await driver.apply(replace(done, follows=(driver.follower(done.after),)))

    assert isinstance(await ways.compare(commit_with_follower), Applied)
    assert scripts_of(ways) == ["apply_with_follow_ups"]


@pytest.mark.parametrize("kind", ["events", "stages", "ckpt", "ckpt:meta"])
async def test_a_key_of_the_task_is_of_another_type(ways: Ways, kind: str) -> None:
    task_id = await start(ways)
    done = [await way.driver.done(await way.driver.load(task_id)) for way in ways.both]
    ways.damage(f"{kind}:{task_id}", "SADD", "another")

    async def try_commit(driver: StoreDriver) -> Any:
        try:
            return await driver.apply(done[driver is ways.general.driver])
        except SerialisationError:
            return "unreadable"

    await ways.compare(try_commit)
    assert scripts_of(ways) == (STRAIGHT if kind == "ckpt" else LEFT)
    if kind != "ckpt":
        ways.damage(f"{kind}:{task_id}")
    await ways.mend()
