"""Errors that break what handles errors: each is one failure of its stage, with the true error."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, field_serializer, field_validator

from holdfast import Context, Holdfast, Permanent, Retry, RetryAfter, Snooze, Status
from holdfast.domain.error_text import text_of
from holdfast.domain.task.events import StageFailed, StageUndoFailed
from holdfast.domain.task.task import Failure, FailureKind
from holdfast.runtime.worker.failure_records import describe, summary
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import events_of, suspend, within_bounds
from tests.support.task_records import task as make_task


class Own(BaseException):
    """A user's exception that is no Exception."""


class NoText(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


class NoTextAtAll(BaseException):
    def __str__(self) -> str:
        raise Own

    __repr__ = __str__


class NoModule(Exception):
    __module__ = None  # type: ignore[assignment]


class OddDelay(RetryAfter):
    def __init__(self) -> None:
        """Without that of RetryAfter: there is no delay."""


class OddSnooze(Snooze):
    def __init__(self) -> None:
        """Without that of Snooze: there is no delay."""


def recursive() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def long_chain() -> Exception:
    last: Exception = ValueError("0")
    for number in range(20_000):
        following = ValueError(str(number))
        following.__cause__ = last
        last = following
    return last


ERRORS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "text raises": (NoText, "NoText"),
    "text of a BaseException raises": (NoTextAtAll, "NoTextAtAll"),
    "own": (lambda: Own("no"), "Own"),
    "exit": (lambda: SystemExit(3), "SystemExit"),
    "interrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "generator": (GeneratorExit, "GeneratorExit"),
    "cancelled": (asyncio.CancelledError, "CancelledError"),
    "group": (lambda: ExceptionGroup("some", [ValueError("a"), NoText()]), "ExceptionGroup"),
    "base group": (lambda: BaseExceptionGroup("some", [Own("a")]), "BaseExceptionGroup"),
    "no module": (NoModule, "NoModule"),
    "recursive": (recursive, "ValueError"),
    "long chain": (long_chain, "ValueError"),
    "huge": (lambda: ValueError("x" * 5_000_000), "ValueError"),
    "surrogate": (lambda: ValueError("\ud800"), "ValueError"),
    "retry after nothing": (OddDelay, "OddDelay"),
    "snooze for nothing": (OddSnooze, "OddSnooze"),
}
IN_THREADS = ERRORS | {"stop": (lambda: StopIteration("end"), "StopIteration")}


def is_of(failure: Failure, name: str) -> bool:
    kind = FailureKind.CANCELLED if name == "CancelledError" else FailureKind.STAGE
    return failure.error.rpartition(".")[2] == name and failure.kind is kind


async def failures_of(app: Holdfast, make: MakeEngine, task: Any) -> list[Failure]:
    """Of a task with two attempts, with the second a minute after the first."""
    engine = make(app)
    handle = await task.submit()
    await engine.drain()
    info = await within_bounds(handle.info())
    assert info.status is Status.RETRYING, "by the retry policy"
    await engine.advance("2m")
    assert (await handle.info()).status is Status.FAILED
    assert engine.deaths == 0
    return [e.failure for e in await events_of(engine, handle) if isinstance(e, StageFailed)]


TWICE = Retry(max=2, backoff=("1m",), jitter=0.0)


@pytest.mark.parametrize("name", ERRORS)
async def test_an_odd_error_of_an_async_stage_is_one_failure(
    app: Holdfast, holdfast_engine: MakeEngine, name: str
) -> None:
    make_error, expected = ERRORS[name]

    @app.task("odd", retry=TWICE)
    async def odd(ctx: Context) -> None:
        await asyncio.sleep(0)
        raise make_error()

    found = await failures_of(app, holdfast_engine, odd)
    assert len(found) == 2
    assert all(is_of(one, expected) for one in found), found


@pytest.mark.parametrize("name", IN_THREADS)
async def test_an_odd_error_of_a_plain_stage_is_one_failure(
    app: Holdfast, holdfast_engine: MakeEngine, name: str
) -> None:
    make_error, expected = IN_THREADS[name]

    @app.task("odd", retry=TWICE)
    def odd(ctx: Context) -> None:
        raise make_error()

    found = await failures_of(app, holdfast_engine, odd)
    assert len(found) == 2
    assert all(is_of(one, expected) for one in found), found
    assert "in odd" in (found[0].traceback or ""), "the user's own frame"


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", ERRORS)
async def test_an_odd_error_of_an_undo_is_one_failure(
    app: Holdfast, holdfast_engine: MakeEngine, name: str, plain: bool
) -> None:
    make_error, expected = ERRORS[name]
    flow = app.workflow("odd", retry=TWICE)

    @flow.stage()
    async def only(ctx: Context, _: None) -> None: ...

    if plain:

        @only.undo
        def take_back(ctx: Context, _: None) -> None:
            raise make_error()

    else:

        @only.undo
        async def undo(ctx: Context, _: None) -> None:
            raise make_error()

    engine = holdfast_engine(app)
    handle = await flow.submit(None)
    await engine.drain()
    await handle.rollback()
    await engine.drain()
    await engine.advance("2m")
    assert (await handle.info()).status is Status.ROLLBACK_FAILED
    failed = [e for e in await events_of(engine, handle) if isinstance(e, StageUndoFailed)]
    assert len(failed) == 2
    if name != "snooze for nothing":  # an undo that snoozes fails by that
        assert all(is_of(one.failure, expected) for one in failed), failed


async def test_a_stage_that_cancels_its_own_task_has_failed(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("odd", retry=TWICE)
    async def odd(ctx: Context) -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(0)

    found = await failures_of(app, holdfast_engine, odd)
    assert [one.error for one in found] == ["asyncio.exceptions.CancelledError"] * 2


class BadResult(BaseModel):
    text: str

    @field_serializer("text")
    def write(self, _: str) -> str:
        raise Own("cannot be written")


async def test_a_result_whose_serialiser_raises_anything_is_a_failure(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("odd", retry=TWICE)
    async def odd(ctx: Context) -> BadResult:
        return BadResult(text="a")

    engine = holdfast_engine(app)
    handle = await odd.submit()
    await engine.drain()
    info = await handle.info()
    assert info.status is Status.FAILED, "it will be none the next time either"
    assert info.failure is not None
    assert info.failure.kind is FailureKind.SERIALISATION
    assert "Own: cannot be written" in info.failure.message


READS: list[type[BaseException]] = []


class BadPayload(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def read(cls, text: str) -> str:
        for error in READS:
            raise error
        return text


@pytest.mark.parametrize("error", [Own, SystemExit, KeyboardInterrupt, NoText, NoTextAtAll])
async def test_a_payload_whose_reading_raises_anything_suspends_its_task(
    app: Holdfast,
    holdfast_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    @app.task("odd", retry=TWICE)
    async def odd(ctx: Context, payload: BadPayload) -> None: ...

    engine = holdfast_engine(app)
    handle = await odd.submit(BadPayload(text="a"))
    monkeypatch.setitem(globals(), "READS", [error])
    await engine.drain()
    info = await handle.info()
    assert info.status is Status.FAILED
    assert info.failure is not None
    assert info.failure.kind is not FailureKind.POISON
    assert engine.deaths == 0


@pytest.mark.parametrize("leaves", [[Permanent("never")], [ValueError("a"), Permanent("never")]])
async def test_a_group_with_a_permanent_error_is_permanent(
    app: Holdfast, holdfast_engine: MakeEngine, leaves: list[Exception]
) -> None:
    @app.task("odd", retry=TWICE)
    async def odd(ctx: Context) -> None:
        raise ExceptionGroup("some", [ExceptionGroup("inner", leaves)])

    failure = await suspend(holdfast_engine(app), odd)
    assert failure.kind is FailureKind.PERMANENT
    assert "Permanent: never" in failure.message


async def test_a_group_of_one_error_is_judged_as_that_error(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("odd", retry=Retry(max=2, backoff=("1h",)))
    async def odd(ctx: Context) -> None:
        raise ExceptionGroup("some", [RetryAfter("10s")])

    engine = holdfast_engine(app)
    handle = await odd.submit()
    await engine.drain()
    await engine.advance("11s")
    assert (await handle.info()).status is Status.FAILED


# -- how an error is written down


class Shouting(type):
    def __getattribute__(cls, name: str) -> Any:
        raise Own


def odd_type() -> Exception:
    class OddType(Exception, metaclass=Shouting):
        pass

    return OddType()


class OddName(Exception):
    pass


OddName.__qualname__ = "\ud800" + "x" * 10_000


class OddClass(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise Own


@pytest.mark.parametrize("make", [odd_type, OddName, OddClass, NoModule, NoText])
def test_an_error_of_an_odd_type_can_be_described(make: Callable[[], Exception]) -> None:
    error = make()
    failure = describe(error, make_task(), "a", now=1.0)
    (failure.error + failure.message + (failure.traceback or "")).encode()
    assert 0 < len(failure.error) <= 500
    summary(error).encode()


def test_the_frames_of_an_error_are_kept_beside_a_huge_message() -> None:
    try:
        raise ValueError("x" * 1_000_000)
    except ValueError as error:
        failure = describe(error, make_task(), "a", now=1.0)
    assert "test_the_frames_of_an_error_are_kept" in (failure.traceback or "")
    assert len(failure.message) <= 2_000
    assert len(failure.traceback or "") <= 16_000


def test_a_traceback_that_cannot_be_made_leaves_the_frames() -> None:
    class Weird(SyntaxError):
        lineno = property(lambda _: 1 / 0)

    try:
        raise Weird("no")
    except Weird as error:
        failure = describe(error, make_task(), "a", now=1.0)
    assert "in test_a_traceback_that_cannot_be_made" in (failure.traceback or "")


@pytest.mark.parametrize(("kind", "raised"), [(NoText, "SystemExit"), (NoTextAtAll, "Own")])
def test_of_an_error_without_a_text_it_is_said_what_reading_it_raised(
    kind: type[BaseException], raised: str
) -> None:
    said = text_of(kind(), 100)
    assert said == f"its text cannot be read: {raised}"
