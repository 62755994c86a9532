"""A person corrects what is kept of a task, and sets it going."""

import asyncio
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast import Context, Handle, Holdfast, Permanent, Status
from holdfast.domain.errors import CheckpointTooLarge, NotJson
from holdfast.domain.task.task import Failure, FailureKind
from holdfast.engine.declare import Workflow
from holdfast.errors import (
    CheckpointConflict,
    CheckpointGone,
    IllegalTransition,
    InvalidInput,
    InvalidPayload,
    NotSuspended,
    TaskNotFound,
)
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.every_store import Place
from tests.support.runtime.helpers import task_of


class Charge(msgspec.Struct, frozen=True):
    amount: int
    token: str = "s3cret-token"


class Bench:
    """A workflow that refuses amounts above 100, and data that says so."""

    def __init__(self, app: Holdfast, engine: Engine) -> None:
        self.app, self.engine = app, engine
        self.charged: list[tuple[int, Any, str]] = []
        self.may_run = asyncio.Event()
        self.may_run.set()
        self.flow: Workflow[Charge, int] = app.workflow("charge", payload=Charge, result=int)

        @self.flow.stage
        async def reserve(ctx: Context, charge: Charge) -> None:
            await self.may_run.wait()
            ctx.data["limit"] = 100

        @self.flow.stage
        async def book(ctx: Context, charge: Charge) -> int:
            if charge.amount > ctx.data["limit"]:
                raise Permanent("too much")
            self.charged.append((charge.amount, ctx.data["limit"], ctx.key))
            return charge.amount

    async def suspended(self, **options: Any) -> Handle[int]:
        handle = await self.flow.submit(Charge(700), **options)
        await self.engine.drain()
        assert (await handle.info()).status is Status.FAILED
        return handle


@pytest.fixture
def bench(place: Place, holdfast_engine: MakeEngine) -> Bench:
    app = Holdfast("memory://")
    return Bench(app, holdfast_engine(app, store=place.store, clock=place.clock))


async def test_a_corrected_payload_goes_on_where_the_task_was(bench: Bench) -> None:
    handle = await bench.suspended(key="k-1", tenant="t-001")
    assert await handle.amend(payload=Charge(7), reason="a slip") is Status.PENDING
    await bench.engine.drain()
    assert await handle.result() == 7
    assert bench.charged == [(7, 100, f"{handle.id}/1/book")], "the effect keys are the same"
    again = await bench.flow.submit(Charge(700), key="k-1", tenant="t-001")
    assert again.id == handle.id, "the first payload answers for its key"


async def test_corrected_data_goes_on_where_the_task_was(bench: Bench) -> None:
    handle = await bench.suspended()
    await handle.amend(data={"limit": 1000})
    await bench.engine.drain()
    assert bench.charged == [(700, 1000, f"{handle.id}/1/book")]


async def test_the_audit_has_before_and_after_without_secrets(bench: Bench) -> None:
    handle = await bench.suspended()
    await bench.app.checkpoints.acting_as("ann", "desk").amend(
        handle.id, payload={"amount": 7, "token": "other"}, data={"limit": 5}, reason="a slip"
    )
    [entry] = await bench.engine.store.admin.audits(limit=10)
    assert (entry.command, entry.by.actor, entry.by.reason) == ("amend", "ann", "a slip")
    assert entry.before.startswith('FAILED {"payload":{"amount":700,')
    assert '"data":{"limit":100}' in entry.before
    assert entry.after.startswith('PENDING {"payload":{"amount":7,')
    assert "s3cret" not in entry.before
    assert "other" not in entry.after


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, InvalidInput),
        ({"payload": {"amount": "seven"}}, InvalidPayload),
        ({"payload": None}, InvalidPayload),
        ({"data": {"x": object()}}, NotJson),
        ({"data": "x"}, InvalidInput),
        ({"data": 7}, InvalidInput),
        ({"data": {"x": "y" * 70_000}}, CheckpointTooLarge),
    ],
)
async def test_what_does_not_fit_is_refused_and_nothing_changes(
    bench: Bench, given: dict[str, Any], error: type[Exception]
) -> None:
    handle = await bench.suspended()
    with pytest.raises(error):
        await handle.amend(**given)
    for checkpoint in ("x", ["y"], 7):
        with pytest.raises(InvalidInput):
            await bench.app.checkpoints.put(handle.id, checkpoint)  # type: ignore[arg-type]
    assert (await handle.info()).status is Status.FAILED
    await handle.amend(payload=Charge(7))
    await bench.engine.drain()
    assert await handle.result() == 7


async def test_of_a_type_that_is_not_known_here_any_json_is_taken(
    bench: Bench, place: Place
) -> None:
    handle = await bench.suspended()
    async with Holdfast(place.store, clock=place.clock) as other:
        await other.handle(handle.id).amend(payload={"amount": 8})
    await bench.engine.drain()
    assert await handle.result() == 8


class Payment(pydantic.BaseModel):
    card: pydantic.SecretStr


async def test_a_secret_stays_one_where_its_type_is_not_known(
    place: Place, holdfast_engine: MakeEngine
) -> None:
    app, seen = Holdfast("memory://"), list[str]()

    @app.task("pay")
    async def pay(ctx: Context, payment: Payment) -> None:
        seen.append(payment.card.get_secret_value())
        if len(seen) == 1:
            raise Permanent("no such card")

    engine = holdfast_engine(app, store=place.store, clock=place.clock)
    handle = await pay.submit(Payment(card=pydantic.SecretStr("4111-old")))
    await engine.drain()
    async with Holdfast(place.store, clock=place.clock) as other:
        given = {"card": "4111-NEW"}
        await other.checkpoints.amend(handle.id, payload=given, from_view=True)
        detail = await other.store.views.detail(handle.id)
        assert detail is not None
        assert other.redactor.body(detail.payload) == {"card": "***"}
    [entry] = await engine.store.admin.audits(limit=10)
    assert "4111" not in entry.before + entry.after
    await engine.drain()
    assert seen == ["4111-old", "4111-NEW"]


@pytest.mark.parametrize("task_id", ["\ud800", None, 7, [], "x" * 1_001])
async def test_what_cannot_be_an_id_is_refused(bench: Bench, task_id: Any) -> None:
    app = bench.app
    with pytest.raises(InvalidInput):
        app.handle(task_id)
    for ask in (app.why, app.checkpoints.get, app.checkpoints.remove):
        with pytest.raises(InvalidInput):
            await ask(task_id)


async def test_only_a_suspended_task_is_amended(bench: Bench) -> None:
    waiting = await bench.flow.submit(Charge(1))
    with pytest.raises(NotSuspended):
        await waiting.amend(payload=Charge(2))
    with pytest.raises(TaskNotFound):
        await bench.app.handle("nobody").amend(payload=Charge(2))
    refused = [
        (one.command, one.refused) for one in await bench.engine.store.admin.audits(limit=10)
    ]
    assert refused == [("amend", "not-suspended")]


async def test_a_checkpoint_is_read_changed_and_put(bench: Bench) -> None:
    handle = await bench.suspended()
    checkpoints = bench.app.checkpoints
    read = await checkpoints.get(handle.id)
    assert read is not None
    changed = msgspec.structs.replace(read, custom_data={"limit": 900})
    put = await checkpoints.put(handle.id, changed, reason="a higher limit")
    assert put.version == read.version + 1
    with pytest.raises(CheckpointConflict, match=f"of version {put.version}, not {read.version}"):
        await checkpoints.put(handle.id, changed)
    with pytest.raises(InvalidInput, match="does not fit"):
        await checkpoints.put(handle.id, msgspec.structs.replace(put, last_completed_stage_index=1))
    assert (await handle.info()).status is Status.FAILED
    await handle.retry()
    await bench.engine.drain()
    assert await handle.result() == 700
    entries = await bench.engine.store.admin.audits(limit=10)
    assert [(one.command, one.refused) for one in reversed(entries)] == [
        ("put-checkpoint", None),
        ("put-checkpoint", "checkpoint-conflict"),
        ("retry", None),
    ]


async def test_a_checkpoint_in_the_documents_json_is_put(bench: Bench) -> None:
    handle = await bench.suspended()
    read = await bench.app.checkpoints.get(handle.id)
    assert read is not None
    document = {
        "lastCompletedStageIndex": 0,
        "completedStageNames": ["reserve"],
        "customData": {"limit": 800},
        "timestamp": "2025-11-23T10:00:00",
        "version": read.version,
    }
    await bench.app.checkpoints.put(handle.id, document)
    with pytest.raises(InvalidInput, match="checkpoint cannot be read"):
        await bench.app.checkpoints.put(handle.id, {"lastCompletedStageIndex": 0})
    await handle.retry()
    await bench.engine.drain()
    assert await handle.result() == 700


async def test_a_removed_checkpoint_leaves_rollback_and_a_new_start(bench: Bench) -> None:
    handle = await bench.suspended()
    await bench.app.checkpoints.remove(handle.id)
    assert await bench.app.checkpoints.get(handle.id) is None
    with pytest.raises(CheckpointGone):
        await handle.retry()
    with pytest.raises(CheckpointGone):
        await handle.amend(payload=Charge(1))
    bench.may_run.clear()
    await handle.retry(from_checkpoint=False)
    with pytest.raises(IllegalTransition):
        await bench.app.checkpoints.remove(handle.id)
    bench.may_run.set()


async def test_a_view_that_is_put_unchanged_changes_nothing_but_the_version(
    place: Place, holdfast_engine: MakeEngine
) -> None:
    app = Holdfast("memory://")
    flow = app.workflow("rotate", payload=str)

    @flow.stage
    async def rotate_secret(ctx: Context, _: str) -> None:
        ctx.data.update(api_token="s3cret", n=1)

    @flow.stage
    async def book(ctx: Context, _: str) -> None:
        raise Permanent("no")

    engine = holdfast_engine(app, store=place.store, clock=place.clock)
    handle = await flow.submit("x")
    await engine.drain()
    first = await app.checkpoints.get(handle.id)
    assert first is not None
    failure = Failure(
        kind=FailureKind.PERMANENT,
        error="E",
        message="password=hunter2",
        stage="a",
        attempt=1,
        at=1.0,
    )
    await app.checkpoints.put(handle.id, msgspec.structs.replace(first, failure_history=(failure,)))
    before = await app.checkpoints.get(handle.id)
    assert before is not None
    assert "rotate_secret" in before.stage_durations
    detail = await app.store.views.detail(handle.id)
    assert detail is not None
    assert detail.checkpoint is not None
    view = app.redactor.body(detail.checkpoint)
    assert "hunter2" not in str(view)
    put = await app.checkpoints.put(handle.id, view, from_view=True)
    assert put == msgspec.structs.replace(before, version=before.version + 1)
    assert await app.checkpoints.get(handle.id) == put
    with pytest.raises(CheckpointConflict):
        await app.checkpoints.put(handle.id, view | {"failureHistory": []}, from_view=True)


async def test_where_no_checkpoint_is_none_is_removed_and_one_is_put_as_the_first(
    bench: Bench,
) -> None:
    handle, checkpoints = await bench.suspended(), bench.app.checkpoints
    read = await checkpoints.get(handle.id)
    assert read is not None
    await checkpoints.remove(handle.id)
    version = (await task_of(bench.engine, handle)).version
    with pytest.raises(CheckpointGone):
        await checkpoints.remove(handle.id)
    for ask in (checkpoints.remove(handle.id, version=9), checkpoints.put(handle.id, read)):
        with pytest.raises(CheckpointConflict, match="has no checkpoint"):
            await ask
    assert (await task_of(bench.engine, handle)).version == version
    fields = msgspec.to_builtins(read)
    del fields["version"]
    assert (await checkpoints.put(handle.id, fields)).version == 1
    await checkpoints.remove(handle.id, version=1)
    put = await checkpoints.put(handle.id, msgspec.structs.replace(read, version=0))
    assert put.version == 1
