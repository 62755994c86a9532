"""What a submitter can do with a task, and what it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast import Command, Context, Holdfast, HoldfastError, Permanent, Retry, Status
from holdfast.domain.audit import Audit
from holdfast.engine.declare import AsyncTask
from holdfast.errors import (
    IllegalTransition,
    InvalidInput,
    StoreUnavailable,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    TaskRolledBack,
)
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore, Gate, within_bounds

Echo = AsyncTask[str, str]


@pytest.fixture
def echo(app: Holdfast) -> Echo:
    @app.task("echo", retry=Retry(max=1))
    async def echo(ctx: Context, text: str) -> str:
        if text == "fail":
            raise Permanent("told to")
        return text

    return echo


@pytest.fixture
def engine(app: Holdfast, echo: Echo, holdfast_engine: MakeEngine) -> Engine:
    return holdfast_engine(app)


async def test_a_handle_tells_how_its_task_stands(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("hello", tenant="t-1")
    assert handle.id in repr(handle)
    info = await handle.info()
    assert (info.id, info.type, info.tenant) == (handle.id, "echo", "t-1")
    assert (info.status, info.stage, info.completed) == (Status.PENDING, "echo", ())
    assert (info.progress, info.attempt, info.failure) == (0.0, 1, None)
    assert info.created_at == engine.clock.now()
    await engine.drain()
    info = await handle.info()
    assert (info.status, info.stage, info.completed) == (Status.COMPLETED, None, ("echo",))


async def test_a_result_can_be_awaited_before_and_after_the_end(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("hello")
    waiting = asyncio.create_task(handle.result(timeout=30))
    await engine.drain()
    assert await within_bounds(waiting) == "hello"
    assert await handle.result() == "hello"
    assert await engine.app.handle(handle.id).result() == "hello"


async def test_a_suspended_task_raises_task_failed_with_its_failure(
    engine: Engine, echo: Echo
) -> None:
    handle = await echo.submit("fail")
    await engine.drain()
    with pytest.raises(TaskFailed, match="told to") as ended:
        await handle.result()
    assert ended.value.task_id == handle.id
    assert ended.value.failure is not None
    assert ended.value.failure.stage == "echo"


async def test_a_cancelled_task_raises_with_the_reason(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("hello")
    await handle.cancel("too dear")
    with pytest.raises(TaskCancelled, match="too dear"):
        await handle.result()


async def test_a_discarded_task_raises_task_cancelled(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("fail")
    await engine.drain()
    assert await handle.discard("hopeless") is Status.CANCELLED
    with pytest.raises(TaskCancelled):
        await handle.result()
    assert (await handle.info()).reason == "hopeless"


async def test_a_task_rolled_back_raises_so(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("hello")
    await engine.drain()
    await handle.rollback()
    await engine.drain()
    with pytest.raises(TaskRolledBack):
        await handle.result()


async def test_why_answers_in_words(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("hello")
    assert "default" in await handle.why(), "it names what the task waits for"
    with pytest.raises(TaskNotFound):
        await engine.app.why("no-such-task")


async def test_an_unknown_task_is_not_found(engine: Engine) -> None:
    handle = engine.app.handle("no-such-task")
    calls: list[Callable[[], object]] = [
        handle.info,
        handle.envelope,
        handle.result,
        handle.why,
        handle.pause,
        handle.resume,
        handle.cancel,
        handle.retry,
        handle.rollback,
        handle.discard,
    ]
    for call in calls:
        with pytest.raises(TaskNotFound):
            await call()  # type: ignore[misc]


async def test_the_envelope_is_that_of_the_document(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("hello", key="k-1", trace_id="trace-9", user={"name": "ann"})
    seen = msgspec.json.decode(msgspec.json.encode(await handle.envelope()))
    assert seen == {
        "taskId": handle.id,
        "type": "echo",
        "payload": "hello",
        "context": {"idempotencyKey": "k-1", "traceId": "trace-9", "user": {"name": "ann"}},
        "retry": {"count": 0, "max": 1, "nextAttemptAt": 0},
        "status": "pending",
        "createdAt": "2023-11-14T22:13:20.000+00:00",
        "updatedAt": "2023-11-14T22:13:20.000+00:00",
        "taskStatus": "PENDING",
    }
    await engine.drain()
    assert (await handle.envelope()).status == "completed"


async def test_an_illegal_command_names_state_and_command_and_changes_nothing(
    engine: Engine, echo: Echo
) -> None:
    handle = await echo.submit("hello")
    await engine.drain()
    [before] = await engine.store.views.load([handle.id])
    for command in (handle.pause, handle.resume, handle.cancel, handle.retry, handle.discard):
        with pytest.raises(IllegalTransition) as refused:
            await command()
        assert refused.value.status is Status.COMPLETED
        assert str(refused.value.command) in str(refused.value)
    assert await engine.store.views.load([handle.id]) == [before]


async def test_asking_what_is_possible_changes_nothing(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("hello")
    [before] = await engine.store.views.load([handle.id])
    can = {c for c in Command if await engine.app.control.can(handle.id, c)}
    assert can == {Command.START, Command.DUE, Command.PAUSE, Command.CANCEL}
    assert await engine.store.views.load([handle.id]) == [before]
    assert await engine.store.admin.audits(limit=10) == []
    with pytest.raises(TaskNotFound):
        await engine.app.control.can("no-such-task", Command.PAUSE)


async def test_every_command_is_written_down_done_or_refused(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("hello")
    by_ann = engine.app.control.acting_as("ann", "10.0.0.7")
    await by_ann.pause(handle.id, reason="lunch")
    with pytest.raises(IllegalTransition):
        await by_ann.discard(handle.id, reason="gone")
    await handle.resume()
    resumed, refused, paused = await engine.store.admin.audits(limit=10)
    assert facts(paused) == ("ann", "10.0.0.7", "lunch", "pause", "PENDING", "PAUSED", None)
    assert facts(refused) == (
        *("ann", "10.0.0.7", "gone", "discard", "PAUSED", "PAUSED"),
        "illegal-transition",
    )
    assert facts(resumed) == ("app", "", "", "resume", "PAUSED", "PENDING", None)
    assert paused.at == engine.clock.now()
    assert (await engine.store.views.stats()).refused == {"PAUSED discard": 1}


def facts(audit: Audit) -> tuple[str | None, ...]:
    by = audit.by
    return (
        *(by.actor, by.origin, by.reason),
        *(str(audit.command), str(audit.before), str(audit.after), audit.refused),
    )


async def test_a_submit_to_a_store_that_is_away_is_an_error_at_once_and_critical(
    app: Holdfast,
    echo: Echo,
    holdfast_engine: MakeEngine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    memory = MemoryStore(clock)
    store = FlakyStore(memory)
    holdfast_engine(app, store=store, clock=clock)
    store.down = {"*"}
    with pytest.raises(StoreUnavailable):
        await within_bounds(echo.submit("hello"))
    assert [r.levelname for r in caplog.records] == ["CRITICAL"]
    store.down = set()
    assert memory.state.tasks == {}, "nothing was accepted"


async def refuse_submits(echo: Echo, times: int) -> None:
    for _ in range(times):
        with pytest.raises(StoreUnavailable):
            await within_bounds(echo.submit("hello"))


async def test_refused_submits_are_told_of_now_and_then(
    app: Holdfast,
    echo: Echo,
    holdfast_engine: MakeEngine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log may be on the disk that is full."""
    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    holdfast_engine(app, store=store, clock=clock)
    store.down = {"*"}
    await refuse_submits(echo, 50)
    assert len(caplog.records) == 1
    clock.advance(11)
    await refuse_submits(echo, 1)
    assert len(caplog.records) == 2
    assert "49 more refusals since" in caplog.records[-1].getMessage()
    store.down = set()


async def test_refusals_that_were_left_out_are_told_when_the_store_is_back(
    app: Holdfast,
    echo: Echo,
    holdfast_engine: MakeEngine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    holdfast_engine(app, store=store, clock=clock)
    store.down = {"*"}
    await refuse_submits(echo, 50)
    store.down = set()
    await within_bounds(echo.submit("hello"))
    assert len(caplog.records) == 1, "a store that comes and goes does not fill the log"
    clock.advance(11)
    for _ in range(3):
        await within_bounds(echo.submit("hello"))
    assert len(caplog.records) == 2
    assert "49 more submits were refused" in caplog.records[-1].getMessage()


async def test_refusals_that_were_left_out_are_told_at_the_close(
    app: Holdfast, echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    store = FlakyStore(MemoryStore(app.clock))
    with app.on(store, clock=app.clock, chance=app.chance):
        store.down = {"insert"}
        await refuse_submits(echo, 5)
        told = len(caplog.records)
    assert told == 1
    assert "4 more submits were refused" in caplog.records[-1].getMessage()


async def test_an_app_that_is_not_open_says_so(app: Holdfast, echo: Echo) -> None:
    for _ in range(2):
        with pytest.raises(HoldfastError, match="not open"):
            await echo.submit("hello")
        with pytest.raises(HoldfastError, match="not open"):
            await app.handle("x").result()
        async with app:
            await echo.submit("hello")


@pytest.mark.parametrize(
    "text", [7, None, "\ud800", "x" * 2_001], ids=["int", "none", "lone", "long"]
)
async def test_a_reason_or_an_actor_that_would_spoil_the_record_is_refused(
    engine: Engine, echo: Echo, text: Any
) -> None:
    handle = await echo.submit("hello")
    [before] = await engine.store.views.load([handle.id])
    commands: list[Callable[[Any], Awaitable[Status]]] = [
        *(handle.pause, handle.resume, handle.cancel),
        *(handle.retry, handle.rollback, handle.discard),
    ]
    for command in commands:
        with pytest.raises(InvalidInput, match="reason"):
            await command(text)
    with pytest.raises(InvalidInput, match="actor"):
        engine.app.control.acting_as(text)
    with pytest.raises(InvalidInput, match="origin"):
        engine.app.control.acting_as("ann", text)
    assert await engine.store.views.load([handle.id]) == [before]
    assert await engine.store.admin.audits(limit=10) == []


async def test_why_it_was_resumed_or_retried_is_written_down(engine: Engine, echo: Echo) -> None:
    handle = await echo.submit("fail")
    await handle.pause()
    await handle.resume(reason="back from lunch")
    await engine.drain()
    await handle.retry(reason="mended")
    retried, resumed, _ = await engine.store.admin.audits(limit=10)
    assert (resumed.by.reason, retried.by.reason) == ("back from lunch", "mended")


async def test_a_task_that_was_not_kept_is_said_to_have_ended(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("brief", keep=0)
    async def brief(ctx: Context) -> int:
        return 7

    engine = holdfast_engine(app)
    handle = await brief.submit()
    await engine.drain()
    assert await handle.result() == 7
    for ask in (handle.info, handle.envelope):
        with pytest.raises(TaskNotFound, match="ended as COMPLETED") as gone:
            await ask()
        assert gone.value.task_id == handle.id


async def test_a_running_task_can_be_resumed_only_while_a_pause_waits(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    gate = Gate()
    stand = gate.declare(app, "stand")

    engine = holdfast_engine(app)
    handle = await stand.submit()
    await engine.advance("1s")
    assert (await handle.info()).status is Status.RUNNING
    assert not await app.control.can(handle.id, Command.RESUME)
    await handle.pause()
    assert await app.control.can(handle.id, Command.RESUME)
    await handle.resume()
    assert not await app.control.can(handle.id, Command.RESUME)
    gate.open()
    await engine.drain()
