"""After the same thousand tasks, a person sees the same with the straight path and without it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.domain.task.state import Command
from holdfast.domain.task.task import Task
from holdfast.observe.metrics import Metrics
from holdfast.observe.snapshot import Snapshot
from holdfast.ports import Detail, Filter
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.redis.path_comparison import Ways

TASKS, BATCH = 1_000, 50
QUEUES = ("default", "mail")
SAMPLES = 60  # tasks whose whole story is compared
OF_THIS_PROCESS = ("process_", "holdfast_build_info")


async def play(driver: StoreDriver) -> list[str]:
    """Submit and run a thousand tasks of many kinds; return the ids in order."""
    ids: list[str] = []
    for number in range(0, TASKS, BATCH):
        batch = [driver.submission(**fields_of(n)) for n in range(number, number + BATCH)]
        await driver.insert(*batch)
        ids += [submission.task.id for submission in batch]
        driver.clock.advance(0.25)
        await work(driver, await driver.claim(queues=QUEUES, limit=64))
    while claimed := await driver.claim(queues=QUEUES, limit=64):
        await work(driver, claimed)
    return ids


def fields_of(number: int) -> dict[str, Any]:
    """Return the facts of a task. Those of tenants are all alike: the order in which one batch lets
    the next of several tenants through is not promised."""
    fields: dict[str, Any] = {"payload": {"number": number}, "stages": ("one",)}
    if number % 5 == 0:
        return fields | {"tenant": f"t-{number % 40}"}
    if number % 3 == 0:
        fields["stages"] = ("one", "two", "three")
    if number % 7 == 0:
        fields["key"] = f"key-{number}"
    if number % 11 == 0:
        fields |= {"type": "test.mail", "queue": "mail"}
    return fields


async def work(driver: StoreDriver, claimed: Sequence[Any]) -> None:
    """Run what was claimed stage by stage, in batches; what is unusual happens now and then."""
    running = [(number, one.task) for number, one in enumerate(claimed)]
    while running:
        driver.clock.advance(0.125)
        usual = [(n, task) for n, task in running if not await is_unusual(driver, n, task)]
        writes = [await driver.done(task, result_of(n, task)) for n, task in usual]
        outcomes = await driver.store.tasks.apply(writes)
        running = [
            (n, outcome.task)
            for (n, _), outcome in zip(usual, outcomes, strict=True)
            if outcome.task is not None and outcome.task.lease is not None
        ]


def result_of(number: int, task: Task) -> str:
    return "ok" if task.tenant is not None else "x" * (number % 90)


async def is_unusual(driver: StoreDriver, number: int, task: Task) -> bool:
    """Do what happens to a few tasks: a failure, a pause that is asked for, a task given back."""
    if number == 13:
        await driver.suspend(task)
    elif number == 17 and task.last_completed == 0:
        await driver.pause(task)
    elif number == 19 and task.fence and task.run == 0 and task.version == 2:
        await driver.give_back(task)
    else:
        return False
    return True


async def test_a_thousand_tasks_look_the_same(ways: Ways) -> None:
    ids = await ways.compare(play)
    sent = ways.straight.sent
    assert {"claim", "apply"} <= set(sent), "the play has nothing unusual in it"

    await ways.compare_answers(read_stats)
    await ways.compare_answers(lambda d: d.store.admin.audits(limit=TASKS))
    await ways.compare_answers(lambda d: d.store.admin.doctor(fix=False, limit=TASKS))
    await ways.compare_answers(exposition)
    await ways.compare_answers(lambda d: d.store.views.find(Filter(), limit=TASKS))
    for task_id in ids[:: TASKS // SAMPLES]:
        await ways.compare_answers(partial(read_detail, task_id=task_id))
    assert len(await ways.straight.driver.find_ids(limit=100)) == TASKS


async def read_stats(driver: StoreDriver) -> dict[str, object]:
    """Return the totals of a store, whose lists have no order."""
    stats = msgspec.structs.asdict(await driver.store.views.stats())
    return {
        name: sorted(map(repr, value)) if isinstance(value, tuple | list) else value
        for name, value in stats.items()
    }


async def read_detail(driver: StoreDriver, task_id: str) -> Detail | None:
    return await driver.store.views.detail(task_id)


async def exposition(driver: StoreDriver) -> list[str]:
    """Return what Prometheus would scrape, but for the lines about this process."""
    stats = await driver.store.views.stats()
    lines = Metrics().exposition(Snapshot(stats=stats)).decode().splitlines()
    lines = [line for line in lines if not line.removeprefix("# HELP ").startswith(OF_THIS_PROCESS)]
    return sorted(lines)


async def test_a_request_that_comes_between_two_commits_is_seen_on_both_ways(ways: Ways) -> None:
    async def play_requests(driver: StoreDriver) -> list[str]:
        tasks = await driver.start_many(12)
        for task in tasks[::3]:
            await driver.ask(Command.CANCEL, task)
        outcomes = await driver.store.tasks.apply([await driver.done(task) for task in tasks])
        return [type(outcome).__name__ for outcome in outcomes]

    assert "Stale" in await ways.compare(play_requests)
