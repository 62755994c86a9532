"""The app for code without an event loop: one loop thread, the same calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from holdfast.domain.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.app.core import Holdfast
    from holdfast.app.declare import Submittable
    from holdfast.app.handle import Handle, Info
    from holdfast.domain.state import Status

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")


class Blocking:
    """``with app.blocking:`` opens; ``app.blocking.submit(send, "x").result(30)`` waits."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._depth = 0

    def __enter__(self) -> Blocking:
        self._start()
        try:
            self.call(self._app.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call(self._app.__aexit__(None, None, None))
        finally:
            self._stop()

    @contextmanager
    def running(self, workers: int = 1) -> Iterator[Blocking]:
        """Open, with workers in the loop thread."""
        self._start()
        try:
            entered: AbstractAsyncContextManager[Any] = self._app.running(workers)
            self.call(entered.__aenter__())
            try:
                yield self
            finally:
                self.call(entered.__aexit__(None, None, None))
        finally:
            self._stop()

    @overload
    def submit(
        self, what: Submittable[None, R], payload: None = None, **options: Any
    ) -> BlockingHandle[R]: ...

    @overload
    def submit(self, what: Submittable[P, R], payload: P, **options: Any) -> BlockingHandle[R]: ...

    def submit(
        self, what: Submittable[Any, R], payload: Any = None, **options: Any
    ) -> BlockingHandle[R]:
        handle = self.call(what.submit(payload, **options))
        return BlockingHandle(self, handle)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine of the app on its loop and wait for it."""
        if self._loop is None:
            coroutine.close()
            raise HoldfastError("the app is not open: use 'with app.blocking:'")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise HoldfastError("the blocking face was called on the loop's own thread")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _start(self) -> None:
        self._depth += 1
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="holdfast-loop", daemon=True
            )
            self._thread.start()

    def _stop(self) -> None:
        self._depth -= 1
        if self._depth or self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None


class BlockingHandle(Generic[R]):
    def __init__(self, face: Blocking, handle: Handle[R]) -> None:
        self._face = face
        self._handle = handle
        self.id = handle.id

    def result(self, timeout: float | str | None = None) -> R:
        return self._face.call(self._handle.result(timeout))

    def info(self) -> Info:
        return self._face.call(self._handle.info())

    def why(self) -> str:
        return self._face.call(self._handle.why())

    def pause(self, reason: str = "") -> Status:
        return self._face.call(self._handle.pause(reason))

    def resume(self, *, force: bool = False) -> Status:
        return self._face.call(self._handle.resume(force=force))

    def cancel(self, reason: str = "") -> Status:
        return self._face.call(self._handle.cancel(reason))

    def retry(self, *, from_checkpoint: bool = True, force: bool = False) -> Status:
        return self._face.call(self._handle.retry(from_checkpoint=from_checkpoint, force=force))

    def rollback(self, reason: str = "", *, force: bool = False) -> Status:
        return self._face.call(self._handle.rollback(reason, force=force))

    def discard(self, reason: str = "") -> Status:
        return self._face.call(self._handle.discard(reason))
