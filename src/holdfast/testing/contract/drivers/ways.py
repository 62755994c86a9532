"""Ways of a task to each of its statuses: each goes one step further than another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Task
from holdfast.testing.contract.drivers.store_driver import StoreDriver

Step = Command | Callable[..., Awaitable[Task]]


async def promote(driver: StoreDriver, task: Task) -> Task:
    assert (await driver.promote_after(61)).count == 1
    return await driver.load(task.id)


async def lapse(driver: StoreDriver, task: Task) -> Task:
    await driver.lapse()
    return await driver.load(task.id)


async def undo_stage(driver: StoreDriver, _: Task) -> Task:
    return await driver.commit(driver.decide_undo(await driver.take()))


# The status in which the way ends, the way before its last step, and that step.
WAYS: dict[str, tuple[Status, str | None, Step]] = {
    "held": (Status.CREATED, None, partial(StoreDriver.submit, held=True)),
    "submitted": (Status.PENDING, None, StoreDriver.submit),
    "released": (Status.PENDING, "held", Command.RELEASE),
    "given_back": (Status.PENDING, "running", StoreDriver.give_back),
    "due": (Status.PENDING, "retrying", promote),
    "lapsed": (Status.PENDING, "running", lapse),
    "resumed": (Status.PENDING, "paused", Command.RESUME),
    "retried": (Status.PENDING, "failed", Command.RETRY),
    "run_again": (Status.PENDING, "rolled_back", Command.RETRY),
    "running": (Status.RUNNING, None, StoreDriver.start_past_stage),
    "retrying": (Status.RETRYING, "running", StoreDriver.fail),
    "paused": (Status.PAUSED, "running", StoreDriver.pause),
    "completed": (Status.COMPLETED, "running", StoreDriver.complete),
    "failed": (Status.FAILED, "running", StoreDriver.suspend),
    "withdrawn": (Status.CANCELLED, "submitted", Command.CANCEL),
    "cancelled": (Status.CANCELLED, "running", StoreDriver.cancel),
    "discarded": (Status.CANCELLED, "failed", Command.DISCARD),
    "to_roll_back": (Status.ROLLING_BACK, "completed", Command.ROLLBACK),
    "undoing": (Status.ROLLING_BACK, "to_roll_back", undo_stage),
    "rolled_back": (Status.ROLLED_BACK, "failed", StoreDriver.roll_back),
    "not_rolled_back": (Status.ROLLBACK_FAILED, "running", StoreDriver.fail_rollback),
}
CASES = [pytest.param(status, way, id=f"{status}-{way}") for way, (status, _, _) in WAYS.items()]


async def walk(driver: StoreDriver, way: str) -> Task:
    """Make a task and take it all the way; return its record as it is then."""
    _, before, step = WAYS[way]
    tasks: list[Any] = [] if before is None else [await walk(driver, before)]
    if isinstance(step, Command):
        return await driver.ask(step, *tasks)
    return await step(driver, *tasks)
