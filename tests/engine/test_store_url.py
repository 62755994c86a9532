"""Opening: what is there, what is not, and what to do then (P10)."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, Status
from holdfast.clock import SystemClock
from holdfast.engine import store_url
from holdfast.errors import StoreError, StoreUnavailable, StoreUnusable
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from tests.support.runtime.helpers import BOUND_SECONDS, within_bounds

OUT_OF_REACH = "sqlite:////no/such/folder/holdfast.db"


async def test_a_store_out_of_reach_is_a_clear_error() -> None:
    app = Holdfast(OUT_OF_REACH)
    with pytest.raises(StoreError, match="no/such/folder"):
        async with app:
            pass
    assert not app.degraded


class Away(MemoryStore):
    async def open(self) -> None:
        raise StoreUnavailable("nobody answers")


async def test_with_the_fallback_it_starts_on_memory_and_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_url, "store_from_url", lambda _, clock, *__, **___: Away(clock))
    app = Holdfast("sqlite:///holdfast.db", fallback="memory")

    @app.task("echo")
    async def echo(ctx: Context, text: str) -> str:
        return text

    with caplog.at_level(logging.WARNING):
        async with app.running():
            assert app.degraded
            assert not app.store.durable
            handle = await echo.submit("hello")
            assert await within_bounds(handle.result()) == "hello"
    assert [r.levelname for r in caplog.records] == ["WARNING"]


async def test_the_fallback_is_not_for_a_store_that_a_person_must_mend(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    foreign.write_text("this is no database, but somebody's letters\n" * 100)
    for url in (f"sqlite:///{foreign}", OUT_OF_REACH):
        app = Holdfast(url, fallback="memory")
        with pytest.raises(StoreUnusable):
            async with app:
                pass
        assert not app.degraded


async def test_a_store_that_opens_is_not_a_fallback(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db", fallback="memory")
    async with app:
        assert not app.degraded
        assert app.store.durable


async def test_what_was_submitted_is_there_after_a_restart(tmp_path: Path) -> None:
    def deployed() -> Holdfast:
        app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")

        @app.task("echo")
        async def echo(ctx: Context, text: str) -> str:
            return text

        app.echo = echo  # type: ignore[attr-defined]
        return app

    async with deployed() as app:
        handle = await app.echo.submit("hello", key="k")  # type: ignore[attr-defined]
    async with deployed().running() as again:
        assert await within_bounds(again.handle(handle.id).result()) == "hello"
        assert (await again.echo.submit("hello", key="k")).id == handle.id  # type: ignore[attr-defined]


async def test_it_can_be_opened_inside_itself() -> None:
    store = MemoryStore(ManualClock())
    app = Holdfast(store)
    async with app:
        async with app:
            pass
        assert app.store.url == store.url
        assert app.in_memory
    async with app:
        assert app.in_memory


async def test_workers_of_one_process_share_the_work(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/holdfast.db")
    both = asyncio.Barrier(2)

    @app.task("meet")
    async def meet(ctx: Context) -> None:
        await both.wait()

    async with app.running(workers=2, slots=1):
        handles = [await meet.submit() for _ in range(2)]
        await within_bounds(asyncio.gather(*(handle.result() for handle in handles)))


async def test_a_file_of_another_namespace_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    async with Holdfast(url, namespace="staging"):
        pass
    with pytest.raises(StoreError, match="staging"):
        async with Holdfast(url, namespace="production"):
            pass


async def test_a_store_that_was_given_is_not_closed() -> None:
    class Own(MemoryStore):
        closed = False

        async def close(self) -> None:
            self.closed = True

    store = Own(ManualClock())
    async with Holdfast(store):
        pass
    assert not store.closed


async def test_a_plain_function_that_outlasts_the_drain_is_given_back_and_is_no_crash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reached, opened = threading.Event(), threading.Event()
    store = MemoryStore(SystemClock())
    app = Holdfast(store, drain=0)

    @app.task("plain")
    def plain(ctx: Context) -> None:
        reached.set()
        assert opened.wait(BOUND_SECONDS)

    try:
        async with app.running():
            handle = await plain.submit()
            assert await asyncio.to_thread(reached.wait, BOUND_SECONDS)
        [task] = await store.views.load([handle.id])
        assert task is not None
        assert (task.status, task.lease, task.crashes) == (Status.PENDING, None, 0)
        [said] = [r for r in caplog.records if r.levelname == "CRITICAL"]
        assert handle.id in said.getMessage()
    finally:
        opened.set()
