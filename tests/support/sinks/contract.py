"""The promises of every sink, whatever its database is. See test_mongo.py and test_sql.py."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from urllib.parse import quote

import pytest

from holdfast import Context, Holdfast, Retry, Status
from holdfast.domain.errors import SinkUnavailable, StaleFence
from holdfast.engine.declare import Workflow
from holdfast.errors import InvalidInput
from holdfast.sinks.fences import FENCES
from holdfast.testing.plugin import MakeEngine

TABLE = "summaries"
KEY = "01TASK/0/store"
SCOPE = "01TASK"
HASTE_SECONDS = 0.2
BOUND_SECONDS = 60.0  # for what should end: a slow machine gets its time
PATIENT_SECONDS = 600.0  # of a sink whose calls must not end by it


class Sink(Protocol):
    async def write_once(
        self,
        place: str,
        fields: dict[str, Any],
        /,
        *,
        key: str,
        fence: int | None = None,
        scope: str | None = None,
    ) -> bool: ...

    async def upsert_one(
        self,
        place: str,
        fields: dict[str, Any],
        /,
        *,
        key: str,
        fence: int | None = None,
        scope: str | None = None,
    ) -> None: ...

    async def forget(
        self, place: str, /, *, key: str, fence: int | None = None, scope: str | None = None
    ) -> None: ...


class World(ABC):
    """A sink, and another way to what it wrote."""

    sink: Sink

    @abstractmethod
    async def kept(self) -> dict[str, Any]:
        """The numbers that are there, by their keys. A key that is there twice fails."""

    @abstractmethod
    async def text_of(self, key: str) -> str: ...

    async def write(self, number: int = 7, *, key: str = KEY, **guard: Any) -> bool:
        return await self.sink.write_once(TABLE, {"number": number}, key=key, **guard)

    async def upsert(self, number: int = 7, *, key: str = KEY, **guard: Any) -> None:
        await self.sink.upsert_one(TABLE, {"number": number}, key=key, **guard)

    async def forget(self, *, key: str = KEY, **guard: Any) -> None:
        await self.sink.forget(TABLE, key=key, **guard)


@contextmanager
def hasty(sink: Any) -> Iterator[None]:
    """Shorten the sink's timeout while a call would hang, and restore it afterwards."""
    patient, sink._timeout_seconds = sink._timeout_seconds, HASTE_SECONDS
    try:
        yield
    finally:
        sink._timeout_seconds = patient


class Outage(ABC):
    """A database that can be taken away and brought back."""

    world: World

    def hasty(self) -> AbstractContextManager[None]:
        """Shorten timeouts for calls during an outage that the sink does not notice at once."""
        return hasty(self.world.sink)

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self) -> None: ...


class SinkContract:
    """Derive a test class from this one, and add a fixture ``world``."""

    async def test_a_replay_writes_once_and_is_told_so(self, world: World) -> None:
        assert await world.write(1)
        assert not await world.write(2)
        assert await world.write(3, key="another")
        assert await world.kept() == {KEY: 1, "another": 3}

    async def test_the_callers_document_stays_as_it_was(self, world: World) -> None:
        doc = {"number": 1}
        await world.sink.write_once(TABLE, doc, key=KEY)
        assert doc == {"number": 1}

    async def test_of_many_writers_of_a_key_one_writes(self, world: World) -> None:
        first = await asyncio.gather(*(world.write(n) for n in range(20)))
        assert first.count(True) == 1
        assert await world.kept() == {KEY: first.index(True)}

    async def test_of_many_holders_of_a_key_one_writes(self, world: World) -> None:
        writes = (world.write(n, fence=5, scope="t-1") for n in range(10))
        first = await asyncio.gather(*writes)
        assert first.count(True) == 1
        assert await world.kept() == {KEY: first.index(True)}

    async def test_a_stale_fence_is_refused_and_writes_nothing(self, world: World) -> None:
        assert await world.write(1, key="01TASK/0/a", fence=5)
        with pytest.raises(StaleFence) as refused:
            await world.write(2, fence=4)
        assert (refused.value.scope, refused.value.fence, refused.value.seen) == (SCOPE, 4, 5)
        assert await world.kept() == {"01TASK/0/a": 1}

    async def test_the_same_and_a_higher_fence_may_write(self, world: World) -> None:
        fences = {"01TASK/0/a": 5, "01TASK/0/b": 5, "01TASK/0/c": 9}
        for key, fence in fences.items():
            assert await world.write(fence, key=key, fence=fence)
        assert await world.kept() == fences

    async def test_fences_are_compared_within_a_scope_only(self, world: World) -> None:
        assert await world.write(key="a", fence=9, scope="t-1")
        assert await world.write(key="b", fence=1, scope="t-2")
        assert await world.write(key="c")
        with pytest.raises(StaleFence):
            await world.write(key="d", fence=8, scope="t-1")

    async def test_a_refused_fence_lowers_nothing(self, world: World) -> None:
        await world.write(key="a", fence=9, scope="t-1")
        for fence in (3, 8):
            with pytest.raises(StaleFence, match="behind 9"):
                await world.write(fence=fence, scope="t-1")

    async def test_of_many_fences_at_once_the_highest_stays(self, world: World) -> None:
        writes = [world.write(n, key=f"k{n}", fence=n, scope="t-1") for n in range(1, 13)]
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert answers[-1] is True
        assert all(one is True or isinstance(one, StaleFence) for one in answers)
        with pytest.raises(StaleFence, match="behind 12"):
            await world.write(fence=11, scope="t-1")
        written = [n for n, one in enumerate(answers, start=1) if one is True]
        assert sorted((await world.kept()).values()) == written

    async def test_an_upsert_makes_one_and_then_changes_it(self, world: World) -> None:
        await world.upsert(1)
        await world.upsert(2)
        await world.upsert(3, key="another")
        assert await world.kept() == {KEY: 2, "another": 3}

    async def test_an_upsert_leaves_the_other_fields_as_they_are(self, world: World) -> None:
        await world.sink.upsert_one(TABLE, {"number": 1, "text": "first"}, key=KEY)
        await world.upsert(2)
        assert (await world.kept(), await world.text_of(KEY)) == ({KEY: 2}, "first")
        await world.sink.upsert_one(TABLE, {}, key=KEY)
        assert (await world.kept(), await world.text_of(KEY)) == ({KEY: 2}, "first")

    async def test_the_fence_decides_which_upsert_is_the_newer(self, world: World) -> None:
        await world.upsert(1, fence=5)
        await world.upsert(2, fence=5)
        await world.upsert(3, fence=9)
        with pytest.raises(StaleFence) as refused:
            await world.upsert(4, fence=8)
        assert (refused.value.fence, refused.value.seen) == (8, 9)
        assert await world.kept() == {KEY: 3}

    async def test_of_many_upserts_of_a_key_the_highest_fence_stays(self, world: World) -> None:
        upserts = [world.upsert(n, fence=n, scope="t-1") for n in range(1, 13)]
        answers = await asyncio.gather(*upserts, return_exceptions=True)
        assert answers[-1] is None
        assert all(one is None or isinstance(one, StaleFence) for one in answers)
        assert await world.kept() == {KEY: 12}

    async def test_of_many_upserts_without_a_fence_one_stays(self, world: World) -> None:
        await asyncio.gather(*(world.upsert(n) for n in range(20)))
        assert len(await world.kept()) == 1

    async def test_a_zombie_cannot_upsert_what_an_undo_has_removed(self, world: World) -> None:
        await world.upsert(1, fence=1)
        await world.forget(fence=2)
        with pytest.raises(StaleFence):
            await world.upsert(1, fence=1)
        assert await world.kept() == {}

    async def test_an_upsert_goes_over_what_was_written_once(self, world: World) -> None:
        assert await world.write(1, fence=3)
        with pytest.raises(StaleFence):
            await world.upsert(2, fence=2)
        await world.upsert(2, fence=3)
        assert not await world.write(3, fence=3)
        assert await world.kept() == {KEY: 2}

    @pytest.mark.parametrize("doc", [None, [], {1: 2}, {"": 1}])
    async def test_what_is_no_document_is_not_upserted(self, world: World, doc: Any) -> None:
        with pytest.raises(InvalidInput):
            await world.sink.upsert_one(TABLE, doc, key=KEY)
        with pytest.raises(InvalidInput, match="holds the sink's fences"):
            await world.sink.upsert_one(FENCES, {"fence": 1}, key=SCOPE)
        assert await world.kept() == {}

    async def test_a_worker_that_dies_after_an_upsert_leaves_one(
        self, world: World, app: Holdfast, holdfast_engine: MakeEngine
    ) -> None:
        flow = app.workflow("upserting", payload=int, result=int)

        @flow.stage
        async def store(ctx: Context, number: int) -> int:
            await world.upsert(number, key=ctx.key, fence=ctx.fence)
            return number

        engine = holdfast_engine(app)
        engine.crash_at("store", when="after")
        handle = await flow.submit(7)
        await engine.drain()
        assert (engine.deaths, await handle.result()) == (1, 7)
        assert await world.kept() == {f"{handle.id}/1/store": 7}

    async def test_forgetting_removes_one_and_may_be_repeated(self, world: World) -> None:
        await world.write(1)
        await world.write(2, key="another")
        for _ in range(2):
            await world.forget()
        assert await world.kept() == {"another": 2}
        assert await world.write(3), "what was forgotten can be written again"

    async def test_a_zombie_cannot_write_what_an_undo_has_removed(self, world: World) -> None:
        await world.write(1, fence=1)
        await world.forget(fence=2)
        with pytest.raises(StaleFence):
            await world.write(1, fence=1)
        assert await world.kept() == {}

    async def test_a_zombie_cannot_forget_what_another_wrote(self, world: World) -> None:
        await world.write(1, fence=2)
        with pytest.raises(StaleFence):
            await world.forget(fence=1)
        assert await world.kept() == {KEY: 1}

    async def test_the_longest_key_that_a_stage_has_is_taken(self, world: World) -> None:
        key = f"{'0' * 36}/12/{quote('租' * 200)}"
        await world.write(1, key=key, fence=1)
        await world.write(2, key=key, fence=2)
        assert list(await world.kept()) == [key]

    @pytest.mark.parametrize("key", ["", None, 7, b"k", "a\0b", "a\nb", "\ud800", "k" * 2_001])
    async def test_a_key_that_is_none_is_refused(self, world: World, key: Any) -> None:
        with pytest.raises(InvalidInput, match="key"):
            await world.write(key=key)
        with pytest.raises(InvalidInput, match="key"):
            await world.forget(key=key)

    @pytest.mark.parametrize(
        "guard",
        [
            {"fence": -1},
            {"fence": True},
            {"fence": 1.0},
            {"fence": "1"},
            {"fence": 2**63},
            {"scope": "t-1"},
            {"fence": 1, "scope": ""},
            {"fence": 1, "scope": 7},
        ],
    )
    async def test_a_fence_or_scope_that_is_none_is_refused(self, world: World, guard: Any) -> None:
        with pytest.raises(InvalidInput, match=r"fence|scope"):
            await world.write(**guard)
        assert await world.kept() == {}

    @pytest.mark.parametrize("doc", [None, [], "number", {1: 2}, {"": 1}, [("number", 1)]])
    async def test_what_is_no_document_is_refused(self, world: World, doc: Any) -> None:
        with pytest.raises(InvalidInput):
            await world.sink.write_once(TABLE, doc, key=KEY)
        assert await world.kept() == {}

    @pytest.mark.parametrize(
        "text", ["'); DROP TABLE summaries; --", '"', "{'$gt': ''}", "%s ? $1", "é—✓", ""]
    )
    async def test_values_arrive_as_they_are(self, world: World, text: str) -> None:
        assert await world.sink.write_once(TABLE, {"number": 1, "text": text}, key=KEY)
        assert await world.text_of(KEY) == text
        assert await world.write(key=f"with {text}")
        assert not await world.write(key=f"with {text}")

    @pytest.mark.parametrize("value", [object(), {1, 2}, "\ud800"])
    async def test_a_value_that_no_database_keeps_is_refused_by_its_name(
        self, world: World, value: Any
    ) -> None:
        with pytest.raises(InvalidInput, match="'text'") as refused:
            await world.sink.write_once(TABLE, {"number": 1, "text": value}, key=KEY, fence=1)
        assert refused.value.__cause__ is not None
        assert await world.kept() == {}
        assert await world.write(), "the connection is as good as before"

    async def test_a_number_that_is_too_big_is_refused(self, world: World) -> None:
        with pytest.raises(InvalidInput) as refused:
            await world.write(2**70)
        assert refused.value.__cause__ is not None
        assert await world.kept() == {}

    async def test_the_fences_are_no_place_to_write_to(self, world: World) -> None:
        assert await world.write(1, fence=2)
        with pytest.raises(InvalidInput, match="holds the sink's fences"):
            await world.sink.write_once(FENCES, {"fence": 1}, key=SCOPE)
        with pytest.raises(InvalidInput, match="holds the sink's fences"):
            await world.sink.forget(FENCES, key=SCOPE)
        with pytest.raises(StaleFence):
            await world.write(1, fence=1)

    async def test_a_big_document_is_kept_whole(self, world: World) -> None:
        text = "0123456789" * 400_000
        assert await world.sink.write_once(TABLE, {"number": 1, "text": text}, key=KEY)
        assert await world.text_of(KEY) == text

    async def test_a_worker_that_dies_between_write_and_commit_leaves_one(
        self, world: World, app: Holdfast, holdfast_engine: MakeEngine
    ) -> None:
        flow = storing(app, world)
        engine = holdfast_engine(app)
        engine.crash_at("store", when="after")
        handle = await flow.submit(7)
        await engine.drain()
        assert engine.deaths == 1
        assert await handle.result() is False, "the second worker found it there"
        assert await world.kept() == {f"{handle.id}/1/store": 7}

    async def test_a_stage_that_fails_after_its_write_leaves_one(
        self, world: World, app: Holdfast, holdfast_engine: MakeEngine
    ) -> None:
        flow = storing(app, world, failing=2)
        engine = holdfast_engine(app)
        handle = await flow.submit(7)
        await engine.drain()
        for _ in range(2):
            await engine.advance("1m")
            await engine.drain()  # the database lives in real time
        assert await handle.result() is False
        assert await world.kept() == {f"{handle.id}/1/store": 7}

    async def test_a_rollback_removes_it_and_the_stages_fence_is_stale(
        self, world: World, app: Holdfast, holdfast_engine: MakeEngine
    ) -> None:
        seen: list[Context] = []
        flow = storing(app, world, seen=seen)
        engine = holdfast_engine(app)
        handle = await flow.submit(7, tenant="t-1")
        await engine.drain()
        await handle.rollback("not wanted")
        await engine.drain()
        assert (await handle.info()).status is Status.ROLLED_BACK
        assert await world.kept() == {}
        late = seen[0]
        with pytest.raises(StaleFence):
            await world.write(key=late.key, fence=late.fence, scope=late.tenant)
        assert await world.kept() == {}


class OutageContract:
    """Derive a test class from this one, and add a fixture ``outage``."""

    async def test_an_outage_is_told_as_one_and_ends(self, outage: Outage) -> None:
        world = outage.world
        await world.write(1, key="before", fence=1)
        outage.begin()
        guards: list[dict[str, Any]] = [{}, {"fence": 2}]
        with outage.hasty():
            async with asyncio.timeout(BOUND_SECONDS):
                for guard in guards:
                    with pytest.raises(SinkUnavailable) as told:
                        await world.write(2, **guard)
                    assert told.value.__cause__ is not None
                with pytest.raises(SinkUnavailable):
                    await world.forget(key="before")
        outage.end()
        assert await world.write(3)
        assert not await world.write(4)
        assert await world.kept() == {"before": 1, KEY: 3}

    async def test_the_engine_tries_again_until_the_outage_is_over(
        self, outage: Outage, app: Holdfast, holdfast_engine: MakeEngine
    ) -> None:
        world = outage.world
        flow = storing(app, world)
        engine = holdfast_engine(app)
        outage.begin()
        handle = await flow.submit(7)
        with outage.hasty():
            await engine.drain()
        info = await handle.info()
        assert info.status is Status.RETRYING, info
        assert info.failure is not None
        assert info.failure.error == "holdfast.SinkUnavailable"
        outage.end()
        await engine.advance("1m")
        await engine.drain()
        assert await handle.result() is True
        assert await world.kept() == {f"{handle.id}/1/store": 7}

    async def test_an_outage_in_the_middle_of_writes_doubles_none(self, outage: Outage) -> None:
        world = outage.world
        keys = [f"k{n}" for n in range(40)]
        begun = asyncio.Event()

        async def write(key: str) -> bool | SinkUnavailable:
            try:
                return await world.write(key=key, fence=1)
            except SinkUnavailable as error:
                return error
            finally:
                begun.set()

        with outage.hasty():
            writes = [asyncio.create_task(write(key)) for key in keys]
            async with asyncio.timeout(BOUND_SECONDS):
                await begun.wait()
            outage.begin()  # holds up the loop for as long as the server takes to go
            async with asyncio.timeout(BOUND_SECONDS):
                answers = await asyncio.gather(*writes)
        outage.end()
        acknowledged = {key for key, one in zip(keys, answers, strict=True) if one is True}
        assert acknowledged <= set(await world.kept()), "an acknowledged write was lost"
        for key in keys:
            await world.write(key=key, fence=1)
        assert set(await world.kept()) == set(keys)


def storing(
    app: Holdfast, world: World, *, failing: int = 0, seen: list[Context] | None = None
) -> Workflow[int, bool]:
    """One stage that writes, and fails after its write the first times, with its undo."""
    flow = app.workflow("report", payload=int, result=bool)

    @flow.stage(retry=Retry(max=5, backoff=("1s",)))
    async def store(ctx: Context, number: int) -> bool:
        if seen is not None:
            seen.append(ctx)
        first = await world.write(number, key=ctx.key, fence=ctx.fence, scope=ctx.tenant)
        if ctx.attempt <= failing:
            raise RuntimeError("after the write")
        return first

    @store.undo
    async def forget(ctx: Context) -> None:
        key = ctx.key.removesuffix("/undo")
        await world.forget(key=key, fence=ctx.fence, scope=ctx.tenant)

    return flow
