"""An outage of what a stage needs is waited out, and is no failure of its task."""

import asyncio
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Retry, RetryAfter, Status
from holdfast.domain.task import outage
from holdfast.domain.task.events import StageFailed, StageUndoFailed, TaskRetryScheduled
from holdfast.domain.task.task import FailureKind
from holdfast.errors import SinkUnavailable, StoreUnavailable, Unavailable
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import events_of, task_of

S = Status
EVERY = [SinkUnavailable, StoreUnavailable, Unavailable]


class Database:
    """What the stages of a test need; away until it is back."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error: BaseException | None = error or Unavailable("it does not answer")
        self.calls = 0

    def ask(self) -> str:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return "done"


async def write_row(
    database: Database, app: Holdfast, holdfast_engine: MakeEngine, **terms: Any
) -> tuple[Engine, Handle[str]]:
    """Submit a task whose only stage asks the database, and run it once."""

    @app.task("write.row", **terms)
    async def write(ctx: Context) -> str:
        return database.ask()

    engine = holdfast_engine(app)
    handle = await write.submit()
    await engine.drain()
    return engine, handle


async def waits(engine: Engine, handle: Handle[Any]) -> list[float]:
    """Each wait that was decided on, in seconds."""
    events = await events_of(engine, handle)
    return [event.delay_seconds for event in events if isinstance(event, TaskRetryScheduled)]


@pytest.mark.parametrize("error", EVERY)
async def test_ten_minutes_without_its_database_cost_a_task_nothing(
    error: type[Exception], app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    database = Database(error("away"))
    engine, handle = await write_row(database, app, holdfast_engine)
    await engine.advance("10m")
    task = await task_of(engine, handle)
    assert (task.status, task.failures, task.crashes) == (S.RETRYING, 0, 0)
    assert task.outages == database.calls > 3
    assert task.outage_since == task.created_at
    assert task.failure is not None
    expected = FailureKind.PERSISTENCE if error is StoreUnavailable else FailureKind.STAGE
    assert task.failure.kind is expected
    database.error = None
    await engine.advance("6m")
    assert await handle.result() == "done"
    task = await task_of(engine, handle)
    assert (task.outages, task.outage_since) == (0, None)


async def test_the_waits_double_from_a_second_to_five_minutes_with_jitter(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    database = Database()
    engine, handle = await write_row(database, app, holdfast_engine, retry=Retry(max=1))
    await engine.advance("1h")
    delays = await waits(engine, handle)
    whole = [1, 2, 4, 8, 16, 32, 64, 128, 256, *[300] * 20]
    for delay, base in zip(delays, whole, strict=False):
        assert base <= delay < base * (1 + outage.JITTER)
    assert len({delay / base for delay, base in zip(delays, whole, strict=False)}) == len(delays)
    scheduled = [e for e in await events_of(engine, handle) if isinstance(e, TaskRetryScheduled)]
    assert [(e.failures, e.outages) for e in scheduled] == [
        (0, n) for n in range(1, len(scheduled) + 1)
    ]


async def test_an_outage_of_a_day_suspends_with_a_kind_of_its_own(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    database = Database(SinkUnavailable("MongoDB is out of reach"))
    engine, handle = await write_row(database, app, holdfast_engine)
    await engine.advance("23h59m")
    assert (await handle.info()).status is S.RETRYING
    await engine.advance("10m")
    task = await task_of(engine, handle)
    assert task.failure is not None
    assert (task.status, task.failure.kind, task.failures) == (S.FAILED, FailureKind.OUTAGE, 0)
    assert "out of reach" in task.failure.message
    assert "test_outages.py" in task.failure.traceback
    failed = [e.failure for e in await events_of(engine, handle) if isinstance(e, StageFailed)]
    assert "test_outages.py" in failed[0].traceback
    assert not any(failure.traceback for failure in failed[1:])  # there are hundreds of them

    database.error = None
    await engine.app.control.resume_suspended(handle.id)
    await engine.drain()
    assert await handle.result() == "done"


async def test_the_limit_is_a_setting(holdfast_engine: MakeEngine) -> None:
    app, database = Holdfast(outage="30s"), Database()
    engine, handle = await write_row(database, app, holdfast_engine)
    await engine.advance("29s")
    assert (await handle.info()).status is S.RETRYING
    await engine.advance("10s")
    assert (await handle.info()).status is S.FAILED


async def test_failures_and_outages_do_not_add_up(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    errors: list[Exception] = [
        ValueError("first"),
        Unavailable("away"),
        Unavailable("away"),
        ValueError("second"),
        Unavailable("away"),
    ]

    @app.task("write.row", retry=Retry(backoff=(1,), jitter=0))
    async def write(ctx: Context) -> None:
        raise errors.pop(0) if errors else ValueError("third")

    engine = holdfast_engine(app)
    handle = await write.submit()
    await engine.drain()
    seen = []
    while errors:
        left = len(errors)
        task = await task_of(engine, handle)
        seen.append((task.failures, task.outages))
        while len(errors) == left:
            await engine.advance("0.5s")
    task = await task_of(engine, handle)
    assert [*seen, (task.failures, task.outages)] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
    await engine.advance("2s")
    task = await task_of(engine, handle)
    assert task.failure is not None
    assert (task.status, task.failures, task.failure.kind) == (S.FAILED, 3, FailureKind.STAGE)


async def test_a_row_ends_with_any_other_outcome_and_begins_anew(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    database = Database()
    flow = app.workflow("flow")

    @flow.stage
    async def first(ctx: Context) -> str:
        return database.ask()

    @flow.stage
    async def second(ctx: Context) -> str:
        if ctx.task_id:
            raise Unavailable("this too")
        return ""

    engine = holdfast_engine(app)
    handle = await flow.submit()
    await engine.drain()
    await engine.advance("20h")
    database.error = None
    await engine.advance("20h")
    task = await task_of(engine, handle)
    assert (task.status, task.at_stage) == (S.RETRYING, "second")
    assert task.outage_since is not None
    assert task.outage_since >= task.created_at + 20 * 3600


async def test_a_crash_ends_a_row(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    database = Database()
    engine, handle = await write_row(database, app, holdfast_engine)
    await engine.advance("10s")
    before = await task_of(engine, handle)
    assert before.outages > 1
    engine.crash_at("write", when="before")
    while (await task_of(engine, handle)).outage_since == before.outage_since:
        await engine.advance("5s")
    after = await task_of(engine, handle)
    assert (after.outages, after.crashes) == (1, 0)


async def test_an_undo_waits_out_an_outage(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    database = Database()
    flow = app.workflow("flow")

    @flow.stage
    async def only(ctx: Context) -> str:
        return "done"

    @only.undo
    async def undo(ctx: Context) -> None:
        database.ask()

    engine = holdfast_engine(app)
    handle = await flow.submit()
    await engine.drain()
    await handle.rollback()
    await engine.drain()
    await engine.advance("1h")
    task = await task_of(engine, handle)
    assert (task.status, task.failures) == (S.ROLLING_BACK, 0)
    assert task.outages > 3
    failed = [e.failure for e in await events_of(engine, handle) if isinstance(e, StageUndoFailed)]
    assert [bool(failure.traceback) for failure in failed] == [True, *[False] * (len(failed) - 1)]
    await engine.advance("24h")
    task = await task_of(engine, handle)
    assert task.failure is not None
    assert (task.status, task.failure.kind) == (S.ROLLBACK_FAILED, FailureKind.OUTAGE)
    database.error = None
    await engine.app.control.resume_suspended(handle.id)
    await engine.drain()
    assert (await handle.info()).status is S.ROLLED_BACK


@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        (Retry(give_up_on=Unavailable), 1),
        (Retry(retry_on=ValueError), 1),  # only that is tried again
        (Retry(retry_on=Unavailable, max=2, backoff=(1,)), 2),
    ],
)
async def test_what_a_policy_names_is_no_outage(
    policy: Retry, calls: int, app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    database = Database()
    engine, handle = await write_row(database, app, holdfast_engine, retry=policy)
    await engine.advance("1m")
    task = await task_of(engine, handle)
    assert (task.status, database.calls, task.outages) == (S.FAILED, calls, 0)


async def test_retry_after_is_a_failure_as_before(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    class Busy(RetryAfter, Unavailable):
        pass

    database = Database(Busy("10s"))
    engine, handle = await write_row(database, app, holdfast_engine)
    task = await task_of(engine, handle)
    assert (task.failures, task.outages) == (1, 0)


async def test_a_group_of_nothing_but_outages_is_one(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("write.both")
    async def both(ctx: Context, more: str) -> None:
        async def one() -> None:
            raise SinkUnavailable("away")

        async def other() -> None:
            if more:
                raise ValueError(more)

        async with asyncio.TaskGroup() as group:
            group.create_task(one())
            group.create_task(other())

    engine = holdfast_engine(app)
    handles = [await both.submit(""), await both.submit("wrong")]
    await engine.drain()
    found = [await task_of(engine, handle) for handle in handles]
    assert [(task.failures, task.outages) for task in found] == [(0, 1), (1, 0)]


async def test_a_pause_ends_a_row_and_the_stage_has_begun(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    database = Database()
    flow = app.workflow("flow")

    @flow.stage
    async def only(ctx: Context) -> str:
        return database.ask()

    engine = holdfast_engine(app)
    handle = await flow.submit()
    await engine.drain()
    await handle.pause()
    task = await task_of(engine, handle)
    assert (task.status, task.begun) == (S.PAUSED, True)
    await engine.advance("48h")
    await handle.resume()
    await engine.drain()
    task = await task_of(engine, handle)
    assert (task.status, task.outages) == (S.RETRYING, 1)
    assert task.begun


async def test_a_tenants_line_stays_closed_behind_a_workflow_and_opens_behind_a_task(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    database, order = Database(), list[str]()
    flow = app.workflow("flow", payload=str)

    @flow.stage
    async def only(ctx: Context, name: str) -> None:
        order.append(name)
        database.ask()

    @app.task("single")
    async def single(ctx: Context, name: str) -> None:
        order.append(name)
        if name == "first":
            database.ask()

    engine = holdfast_engine(app)
    kinds: list[tuple[Any, str]] = [(flow, "t-1"), (single, "t-2")]
    for kind, tenant in kinds:
        await kind.submit("first", tenant=tenant)
        await kind.submit("next", tenant=tenant)
        await engine.drain()
    assert order == ["first", "first", "next"]  # of the flows only the first
    order.clear()
    database.error = None
    await engine.advance("10s")
    assert sorted(order) == ["first", "first", "next"]
