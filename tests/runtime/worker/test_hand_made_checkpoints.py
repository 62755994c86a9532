"""A checkpoint put back by hand: it resumes, or is refused with the reason (C1, C4)."""

import datetime
from typing import Any

import msgspec
import pytest

from holdfast import Context, Handle, Holdfast, Retry, Status
from holdfast.domain.task.task import FailureKind
from holdfast.engine.declare import Workflow
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.every_store import Place
from tests.support.runtime.helpers import task_of
from tests.support.sqlite.sqlite_files import ask
from verify.servers import RedisServer

# As the document has it: no version, no zone; Jackson writes a LocalDateTime as numbers.
DOCUMENT = {
    "lastCompletedStageIndex": 1,
    "completedStageNames": ["a", "b"],
    "customData": {"by": "hand"},
    "timestamp": "2025-11-23T10:00:00",
}
FORMS: dict[str, dict[str, Any]] = {
    "without a version": {},
    "with numbers for a time": {"timestamp": [2025, 11, 23, 10, 0]},
    "with nanoseconds": {"timestamp": [2025, 11, 23, 10, 0, 1, 5_000]},
    "with nulls": {"version": None, "stageDurations": None, "failureHistory": None},
    "with an older version": {"version": 1},
    "with other names": {"completedStageNames": None, "completedStages": ["a", "b"]},
    "with unknown fields": {"tenantSnapshot": {"x": 1}},
}
REFUSED: dict[str, tuple[dict[str, Any], FailureKind, str]] = {
    "another index": (
        {"lastCompletedStageIndex": 0, "completedStageNames": ["a"]},
        FailureKind.INVALID_CHECKPOINT,
        "of stage 0, the record is at stage 1",
    ),
    "no names": ({"completedStageNames": None}, FailureKind.SERIALISATION, "completedStageNames"),
    "no time": ({"timestamp": [2025, 13, 1]}, FailureKind.SERIALISATION, "month must be in 1..12"),
    "too much data": (
        {"customData": {"x": "y" * 70_000}},
        FailureKind.SERIALISATION,
        "customData has",
    ),
    "an index as text": (
        {"lastCompletedStageIndex": "1"},
        FailureKind.SERIALISATION,
        "Expected `int`",
    ),
}


class Bench:
    def __init__(self, make: MakeEngine, place: Place, request: pytest.FixtureRequest) -> None:
        self.place, self._request = place, request
        self.ran: list[str] = []
        self.saw: dict[str, Any] = {}
        self.broken = True
        app = Holdfast("memory://")
        self.flow: Workflow[Any, Any] = app.workflow("upgrade", retry=Retry(max=1))
        for name in "abcd":
            self._declare(name)
        self.engine: Engine = make(app, store=place.store, clock=place.clock)

    def _declare(self, name: str) -> None:
        @self.flow.stage(name=name)
        async def run(ctx: Context, _: None) -> None:
            self.ran.append(name)
            self.saw = dict(ctx.data)
            if name == "c" and self.broken:
                raise ValueError(name)

    async def failed_at_c(self) -> Handle[Any]:
        handle = await self.flow.submit(None)
        await self.engine.drain()
        assert (await handle.info()).status is Status.FAILED
        self.broken = False
        self.ran.clear()
        return handle

    def put(self, handle: Handle[Any], fields: dict[str, Any]) -> None:
        """Past the engine, with the tools of each store."""
        body = msgspec.json.encode(
            {name: value for name, value in (DOCUMENT | fields).items() if value is not None}
            | {name: None for name, value in fields.items() if value is None}
        )
        store = self.place.store
        if isinstance(store, MemoryStore):
            store.state.bodies[handle.id].checkpoint = body
        elif self.place.kind == "sqlite":
            path = self._request.getfixturevalue("tmp_path") / "holdfast.db"
            ask(path, "UPDATE checkpoints SET body = ?", body.decode())
        else:
            server: RedisServer = self._request.getfixturevalue("redis_server")
            namespace = self._request.getfixturevalue("redis_namespace")
            with server.client() as client:
                assert client.set(f"{namespace}:ckpt:{handle.id}", body, xx=True)


@pytest.fixture
def bench(holdfast_engine: MakeEngine, place: Place, request: pytest.FixtureRequest) -> Bench:
    return Bench(holdfast_engine, place, request)


@pytest.mark.parametrize("form", FORMS)
async def test_a_checkpoint_in_the_documents_own_json_resumes(bench: Bench, form: str) -> None:
    handle = await bench.failed_at_c()
    bench.put(handle, FORMS[form])
    await handle.retry()
    await bench.engine.drain()
    task = await task_of(bench.engine, handle)
    assert (task.status, task.crashes, bench.ran) == (Status.COMPLETED, 0, ["c", "d"])
    assert bench.saw == {"by": "hand"}


@pytest.mark.parametrize("form", REFUSED)
async def test_a_checkpoint_that_is_no_good_is_refused_with_the_reason(
    bench: Bench, form: str
) -> None:
    fields, kind, says = REFUSED[form]
    handle = await bench.failed_at_c()
    bench.put(handle, fields)
    await handle.retry()
    await bench.engine.drain()
    task = await task_of(bench.engine, handle)
    assert (task.status, bench.ran) == (Status.FAILED, [])
    assert task.failure is not None
    assert task.failure.kind is kind
    assert says in task.failure.message
    bench.put(handle, {"timestamp": datetime.datetime.now(datetime.UTC).isoformat()})
    await handle.retry()
    await bench.engine.drain()
    assert (await task_of(bench.engine, handle)).status is Status.COMPLETED


async def test_data_over_a_hand_made_checkpoint_is_amended(bench: Bench) -> None:
    handle = await bench.failed_at_c()
    bench.put(handle, {})
    await handle.amend(data={"by": "ann"})
    await bench.engine.drain()
    assert (await task_of(bench.engine, handle)).status is Status.COMPLETED
    assert bench.saw == {"by": "ann"}


@pytest.mark.parametrize("form", ["no names", "too much data"])
async def test_a_checkpoint_that_cannot_be_read_is_replaced(bench: Bench, form: str) -> None:
    handle = await bench.failed_at_c()
    bench.put(handle, REFUSED[form][0])
    put = await bench.engine.app.checkpoints.put(handle.id, DOCUMENT)
    assert put.version == 2
    await handle.retry()
    await bench.engine.drain()
    assert (await task_of(bench.engine, handle)).status is Status.COMPLETED
    assert bench.saw == {"by": "hand"}
