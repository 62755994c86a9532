"""The ends that a process takes from its own writes are those that the store would show."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Permanent, Status
from holdfast.domain.errors import StoreError
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.ports import Peek
from holdfast.runtime.waiters import peek_after
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.every_store import Place
from tests.support.runtime.helpers import within_bounds


class Recorder:
    """An app whose writes are recorded, each with what it shows to those who wait."""

    def __init__(self, app: Holdfast, make: MakeEngine, place: Place) -> None:
        self.peeks: dict[str, list[Peek | None]] = {}
        self.fails = self.undo_fails = False

        @app.task("answer")
        async def answer(ctx: Context, n: int) -> dict[str, Any]:
            return {"n": n, "text": "ä" * 200}

        @app.task("brief", keep=0)
        async def brief(ctx: Context) -> str:
            return "gone"

        self.answer, self.brief = answer, brief
        self.flow = app.workflow("upgrade", payload=int, result=int)
        stage = self.flow.stage(name="only")(self._only)
        stage.undo(self._undo)
        self.engine: Engine = make(app, store=place.store, clock=place.clock)
        app.waiters.note_answers = self._note  # type: ignore[method-assign]
        app.waiters.awaited["somebody else's task"] = []  # unless somebody waits, none is shown

    async def _only(self, ctx: Context, n: int) -> int:
        if self.fails:
            raise Permanent(f"number {n} fails")
        return n

    async def _undo(self, ctx: Context, n: int) -> None:
        if self.undo_fails:
            raise Permanent("cannot be undone")

    def _note(self, batch: Sequence[Transition], answers: Sequence[Outcome | StoreError]) -> None:
        for transition, outcome in zip(batch, answers, strict=True):
            shown = peek_after(transition, outcome)
            self.peeks.setdefault(transition.after.id, []).append(shown)

    async def last(self, handle: Handle[Any]) -> Peek:
        """Return what the last write of a task has shown: it is what the store shows."""
        await self.engine.drain()
        [peek] = await self.engine.store.views.peek([handle.id])
        shown = self.peeks[handle.id][-1]
        assert shown is not None
        assert shown == peek
        return shown


@pytest.fixture
def recorder(app: Holdfast, holdfast_engine: MakeEngine, place: Place) -> Recorder:
    return Recorder(app, holdfast_engine, place)


async def test_a_completed_task_is_shown_as_the_store_has_it(recorder: Recorder) -> None:
    handle = await recorder.answer.submit(7)
    peek = await recorder.last(handle)
    assert peek.status is Status.COMPLETED
    assert await within_bounds(handle.result()) == {"n": 7, "text": "ä" * 200}


async def test_a_task_that_is_not_kept_is_shown_as_its_tombstone(recorder: Recorder) -> None:
    handle = await recorder.brief.submit()
    assert (await recorder.last(handle)).result == b'"gone"'


async def test_a_suspended_task_is_shown_with_its_failure(recorder: Recorder) -> None:
    recorder.fails = True
    peek = await recorder.last(await recorder.flow.submit(1))
    assert peek.status is Status.FAILED
    assert peek.failure is not None
    assert "number 1 fails" in peek.failure.message


async def test_a_cancelled_task_is_shown_with_its_reason(recorder: Recorder) -> None:
    first, second = await recorder.answer.submit(1), await recorder.answer.submit(2)
    await first.cancel("not needed")
    await second.cancel()
    assert (await recorder.last(first)).reason == "not needed"
    assert (await recorder.last(second)).status is Status.CANCELLED


async def test_a_discarded_task_is_shown_with_its_failure_and_reason(recorder: Recorder) -> None:
    recorder.fails = True
    handle = await recorder.flow.submit(1)
    await recorder.engine.drain()
    await handle.discard("given up")
    peek = await recorder.last(handle)
    assert (peek.status, peek.reason) == (Status.CANCELLED, "given up")


async def test_the_end_of_a_rollback_is_left_to_the_store(recorder: Recorder) -> None:
    """The store keeps the result of a task that is undone, and a write does not bring it."""
    handle = await recorder.flow.submit(1)
    await recorder.engine.drain()
    recorder.undo_fails = True
    await handle.rollback()
    await recorder.engine.drain()
    assert (await handle.info()).status is Status.ROLLBACK_FAILED
    recorder.undo_fails = False
    await handle.rollback()
    await recorder.engine.drain()
    assert (await handle.info()).status is Status.ROLLED_BACK
    recorder.fails = True
    await handle.retry()
    await recorder.engine.drain()
    assert (await handle.info()).status is Status.FAILED
    assert recorder.peeks[handle.id].count(None) == len(recorder.peeks[handle.id]) - 1


async def test_a_task_that_goes_on_ends_no_waiting(recorder: Recorder) -> None:
    handle = await recorder.answer.submit(1)
    await handle.pause()
    assert recorder.peeks[handle.id] == [None]
