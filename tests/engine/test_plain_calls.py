"""A plain call of a task stays a plain call, sync or async as it was written."""

import inspect

import pytest

from holdfast import Context, Holdfast
from holdfast.errors import NoResult
from holdfast.testing import context


async def test_a_plain_call_of_an_async_task_is_a_coroutine(app: Holdfast) -> None:
    @app.task("mail.send")
    async def send(ctx: Context, to: str) -> str:
        """Sends a mail."""
        return f"{to} for {ctx.tenant}"

    called = send(context(tenant="t-1"), "ann")
    assert inspect.iscoroutine(called)
    assert await called == "ann for t-1"
    assert send.__doc__ == "Sends a mail."


def test_a_plain_call_of_a_plain_task_is_a_plain_call(app: Holdfast) -> None:
    @app.task("add")
    def add(ctx: Context, n: int) -> int:
        return n + ctx.attempt

    assert add(context(attempt=3), 4) == 7


def test_a_task_without_payload_is_called_with_the_context_alone(app: Holdfast) -> None:
    @app.task("who")
    def who(ctx: Context) -> str:
        return ctx.task_id

    assert who(context(task_id="task-9")) == "task-9"


def test_errors_of_a_plain_call_are_the_functions_own(app: Holdfast) -> None:
    @app.task("fail")
    def fail(ctx: Context) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail(context())


async def test_stages_and_undos_can_be_called_too(app: Holdfast) -> None:
    flow = app.workflow("upgrade", payload=int, result=int)

    @flow.stage
    async def snapshot(ctx: Context, n: int) -> str:
        ctx.data["schema"] = n
        ctx.progress(0.5, "half")
        return "s-1"

    @snapshot.undo
    async def drop(ctx: Context, n: int) -> None:
        ctx.data["dropped"] = ctx.find_result(snapshot)

    @flow.stage
    def migrate(ctx: Context, n: int) -> int:
        return len(ctx.result_of(snapshot))

    first = context(stage="snapshot")
    assert await snapshot(first, 7) == "s-1"
    assert first.data == {"schema": 7}
    assert [(p.fraction, p.message) for p in first.reported] == [(0.5, "half")]
    assert migrate(context(results={snapshot: "s-1"}), 7) == 3
    with pytest.raises(NoResult):
        migrate(context(), 7)
    undo = context(results={snapshot: "s-1"})
    await drop(undo, 7)
    assert undo.data == {"dropped": "s-1"}


def test_a_context_has_a_key_and_a_fence() -> None:
    made = context(task_id="t", stage="s", fence=9)
    assert (made.key, made.fence) == ("t/1/s", 9)
    assert context(key="mine").key == "mine"
