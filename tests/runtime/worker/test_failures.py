"""What becomes of a stage that fails."""

import asyncio
import logging

import pytest

from holdfast import Context, Holdfast, Permanent, Retry, RetryAfter, Status
from holdfast.domain.errors import StoreError, StoreFull, StoreUnusable
from holdfast.domain.task.events import StageFailed, TaskRetryScheduled
from holdfast.domain.task.task import FailureKind
from holdfast.errors import StageTimeout, TaskFailed
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import Gate, event_names, events_of, task_of

SURE = Retry(jitter=0.0)


async def test_a_stage_that_returns_completes_its_task(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("add.one")
    async def add(ctx: Context, n: int) -> int:
        return n + 1

    engine = holdfast_engine(app)
    handle = await add.submit(41)
    await engine.drain()
    assert await handle.result() == 42
    names = await event_names(engine, handle)
    assert names == [
        "TaskCreated",
        "TaskStarted",
        "StageStarted",
        "StageCompleted",
        "TaskCompleted",
    ]


async def test_a_failing_stage_backs_off_and_is_suspended_at_the_third_failure(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    attempts: list[float] = []

    @app.task("fail.always", retry=SURE)
    async def fail(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ValueError(f"attempt {ctx.attempt}")

    engine = holdfast_engine(app)
    handle = await fail.submit()
    await engine.drain()
    assert (await handle.info()).status is Status.RETRYING
    await engine.advance("59s")
    assert attempts == [1]
    await engine.advance("1s")
    assert attempts == [1, 2]
    await engine.advance("299s")
    assert attempts == [1, 2]
    await engine.advance("1s")
    assert attempts == [1, 2, 3]
    info = await handle.info()
    assert info.status is Status.FAILED
    assert info.failure is not None
    assert (info.failure.error, info.failure.message) == ("ValueError", "attempt 3")
    assert "raise ValueError" in info.failure.traceback
    with pytest.raises(TaskFailed, match="attempt 3"):
        await handle.result()


async def test_the_stage_has_failed_before_the_task_is_rescheduled_or_failed(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("fail.twice", retry=Retry(max=2, backoff=(1,)))
    async def fail(ctx: Context) -> None:
        raise ValueError

    engine = holdfast_engine(app)
    handle = await fail.submit()
    await engine.drain()
    await engine.advance("2s")
    assert await event_names(engine, handle) == [
        "TaskCreated",
        "TaskStarted",
        "StageStarted",
        "StageFailed",
        "TaskRetryScheduled",
        "TaskDue",
        "TaskStarted",
        "StageStarted",
        "StageFailed",
        "TaskFailed",
    ]


async def test_a_permanent_failure_suspends_at_once(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("fail.for-good")
    async def fail(ctx: Context) -> None:
        raise Permanent("there is no such tenant")

    engine = holdfast_engine(app)
    handle = await fail.submit()
    await engine.drain()
    failure = (await handle.info()).failure
    assert (await handle.info()).status is Status.FAILED
    assert failure is not None
    assert failure.kind is FailureKind.PERMANENT


async def test_retry_after_says_when(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    attempts = []

    @app.task("ask.later", retry=SURE)
    async def ask(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise RetryAfter("2h", "the service says so")
        return "answered"

    engine = holdfast_engine(app)
    handle = await ask.submit()
    await engine.drain()
    [scheduled] = [e for e in await events_of(engine, handle) if isinstance(e, TaskRetryScheduled)]
    assert scheduled.delay_seconds == 7200
    await engine.advance("119m")
    assert attempts == [1]
    await engine.advance("1m")
    assert await handle.result() == "answered"


async def test_retry_after_counts_as_a_failure(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    @app.task("ask.later", retry=Retry(max=2))
    async def ask(ctx: Context) -> str:
        raise RetryAfter(1)

    engine = holdfast_engine(app)
    handle = await ask.submit()
    await engine.drain()
    await engine.advance("1s")
    assert (await handle.info()).status is Status.FAILED


@pytest.mark.parametrize(
    ("policy", "raised", "status"),
    [
        (Retry(retry_on=(OSError,)), ConnectionError("gone"), Status.RETRYING),
        (Retry(retry_on=(OSError,)), ValueError("wrong"), Status.FAILED),
        (Retry(retry_on=(OSError,)), RetryAfter(5), Status.RETRYING),
        (Retry(give_up_on=(LookupError,)), KeyError("none"), Status.FAILED),
        (Retry(give_up_on=(LookupError,)), ValueError("wrong"), Status.RETRYING),
        (Retry(max=1), ValueError("wrong"), Status.FAILED),
    ],
    ids=repr,
)
async def test_the_type_of_the_error_may_decide(
    app: Holdfast,
    holdfast_engine: MakeEngine,
    policy: Retry,
    raised: Exception,
    status: Status,
) -> None:
    @app.task("fail.so", retry=policy)
    async def fail(ctx: Context) -> None:
        raise raised

    engine = holdfast_engine(app)
    handle = await fail.submit()
    await engine.drain()
    assert (await handle.info()).status is status


async def test_a_commit_resets_the_count_of_failures(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    upgrade = app.workflow("upgrade", retry=Retry(max=2, backoff=(1,)))

    @upgrade.stage
    async def first(ctx: Context, _: None) -> None:
        if ctx.attempt == 1:
            raise ValueError

    @upgrade.stage
    async def second(ctx: Context, _: None) -> None:
        if ctx.attempt == 1:
            raise ValueError

    engine = holdfast_engine(app)
    handle = await upgrade.submit(None)
    await engine.advance("5s")
    assert (await handle.info()).status is Status.COMPLETED


async def test_back_off_is_stretched_by_chance(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    @app.task("fail.once", retry=Retry(backoff=(100,), jitter=0.5))
    async def fail(ctx: Context) -> None:
        raise ValueError

    engine = holdfast_engine(app)
    handles = [await fail.submit() for _ in range(20)]
    await engine.drain()
    due = [(await task_of(engine, handle)).due for handle in handles]
    waits = {round(at - engine.clock.now(), 3) for at in due if at is not None}
    assert len(waits) > 10
    assert all(100 <= wait <= 150 for wait in waits)


async def hung(app: Holdfast, engine: Engine) -> Status:
    await engine.advance("9s")
    assert (await app.store.views.stats()).by_status == {Status.RUNNING: 1}
    await engine.advance("1s")
    [status] = (await app.store.views.stats()).by_status
    return status


async def test_an_async_stage_is_stopped_at_its_timeout(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()

    @app.task("hang", timeout="10s")
    async def hang(ctx: Context) -> None:
        await gate.stand()

    engine = holdfast_engine(app)
    handle = await hang.submit()
    assert await hung(app, engine) is Status.RETRYING
    failure = (await handle.info()).failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT
    assert failure.error.endswith(StageTimeout.__name__)


async def test_a_timeout_error_of_the_users_own_is_an_ordinary_failure(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("hang", timeout="10s")
    async def hang(ctx: Context) -> None:
        raise TimeoutError("the database")

    engine = holdfast_engine(app)
    handle = await hang.submit()
    await engine.drain()
    failure = (await handle.info()).failure
    assert failure is not None
    assert (failure.kind, failure.message) == (FailureKind.STAGE, "the database")


async def test_a_stage_that_swallows_its_timeout_has_still_timed_out(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()

    @app.task("hang", timeout="10s")
    async def hang(ctx: Context) -> None:
        try:
            await gate.stand()
        except asyncio.CancelledError:
            return

    engine = holdfast_engine(app)
    await hang.submit()
    assert await hung(app, engine) is Status.RETRYING


async def test_a_cancelled_error_raised_by_user_code_is_a_failure(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("await.cancelled")
    async def wait(ctx: Context) -> None:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    engine = holdfast_engine(app)
    handle = await wait.submit()
    await engine.drain()
    info = await handle.info()
    assert info.status is Status.RETRYING
    assert info.failure is not None
    assert info.failure.error == "asyncio.exceptions.CancelledError"
    assert info.failure.kind is FailureKind.CANCELLED


@pytest.mark.parametrize(
    "error", [StoreFull("no room"), StoreUnusable("wrong password"), StoreError("what?")]
)
async def test_what_the_store_refuses_inside_a_stage_is_a_failure_of_persistence(
    app: Holdfast, holdfast_engine: MakeEngine, error: StoreError
) -> None:
    @app.task("submit.more")
    async def submit_more(ctx: Context) -> None:
        raise error

    engine = holdfast_engine(app)
    handle = await submit_more.submit()
    await engine.drain()
    failure = (await handle.info()).failure
    assert failure is not None
    assert failure.kind is FailureKind.PERSISTENCE


@pytest.mark.parametrize("way_out", [SystemExit(3), StopAsyncIteration()])
async def test_not_even_a_call_of_exit_ends_the_worker(
    app: Holdfast, holdfast_engine: MakeEngine, way_out: BaseException
) -> None:
    @app.task("call.exit")
    async def leave(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise way_out

    engine = holdfast_engine(app)
    handle = await leave.submit()
    await engine.drain()
    await engine.advance("2m")
    assert (await handle.info()).status is Status.COMPLETED


async def test_a_failure_that_cannot_be_written_as_text_is_written_all_the_same(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("fail.oddly", retry=Retry(max=1))
    async def fail(ctx: Context) -> None:
        raise ValueError("\ud800 and \x00" + "x" * 100_000)

    engine = holdfast_engine(app)
    handle = await fail.submit()
    await engine.drain()
    failure = (await handle.info()).failure
    assert failure is not None
    assert failure.message.startswith("\\ud800")
    assert len(failure.message) <= 2_000


async def test_an_error_whose_text_raises_is_a_failure_like_any_other(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @app.task("fail.oddly", retry=Retry(max=1))
    async def fail(ctx: Context) -> None:
        raise Odd

    engine = holdfast_engine(app)
    handle = await fail.submit()
    await engine.drain()
    assert (await handle.info()).status is Status.FAILED


async def test_failures_are_logged_with_the_task(
    app: Holdfast, holdfast_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task("fail.once")
    async def fail(ctx: Context) -> None:
        raise ValueError("broken pipe")

    engine = holdfast_engine(app)
    with caplog.at_level(logging.INFO, logger="holdfast"):
        handle = await fail.submit()
        await engine.drain()
    assert any(handle.id in m and "broken pipe" in m for m in caplog.messages)


async def test_a_retry_by_a_person_counts_anew_and_keeps_the_history(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    attempts = []

    @app.task("fail.always", retry=Retry(max=2, backoff=(1,)))
    async def fail(ctx: Context, text: str) -> None:
        attempts.append(ctx.attempt)
        raise ValueError(text)

    engine = holdfast_engine(app)
    handle = await fail.submit("keep me")
    await engine.advance("5s")
    assert (await handle.info()).status is Status.FAILED
    await handle.retry()
    await engine.advance("5s")
    assert attempts == [1, 2, 1, 2]
    task = await task_of(engine, handle)
    assert (task.status, task.failures, task.run) == (Status.FAILED, 2, 2)
    failed = [e for e in await events_of(engine, handle) if isinstance(e, StageFailed)]
    assert [(e.run, e.failure.attempt) for e in failed] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert all("raise ValueError" in e.failure.traceback for e in failed)
    assert bytes((await handle.envelope()).payload) == b'"keep me"'
