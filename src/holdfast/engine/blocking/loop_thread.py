"""The thread whose event loop runs an app for code that has no loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.domain.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

T = TypeVar("T")


class LoopThread:
    """One loop in one thread, opened with the app and stopped with the last user of it."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._depth = self._entered = 0
        self._pid: int | None = None  # the process that opened it
        self._opening = threading.RLock()
        self._opened_by_itself = False

    def enter(self, entered: AbstractAsyncContextManager[Any]) -> None:
        """Enter an async context of the app on the loop."""
        with self._opening:
            self._start()
            try:
                self._run(entered.__aenter__())
            except BaseException:
                self._stop()
                raise
            self._entered += 1

    def leave(self, entered: AbstractAsyncContextManager[Any]) -> None:
        try:
            self._run(entered.__aexit__(None, None, None))
        finally:
            with self._opening:
                self._entered -= 1
                self._stop()

    def close(self) -> None:
        """Close what the first call opened; the next call opens it again."""
        with self._opening:
            if self._opened_by_itself:
                self._opened_by_itself = False
                atexit.unregister(self.close)
                self.leave(self._app)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the app on its loop and wait for it."""
        try:
            if self._pid not in (None, os.getpid()):
                raise HoldfastError("the app was opened before this process was forked off")
            if threading.current_thread() is self._thread:
                raise HoldfastError("the blocking face was called on the loop's own thread")
            if not self._entered:
                self._open_by_itself()
        except BaseException:
            coroutine.close()
            raise
        return self._run(coroutine)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _open_by_itself(self) -> None:
        with self._opening:
            if self._entered:
                return  # another thread was first
            if self._app.is_open:
                raise HoldfastError(
                    "the app is open on another event loop: await its own methods there, "
                    "such as 'await send.submit(…)'"
                )
            self.enter(self._app)
            self._opened_by_itself = True
            atexit.register(self.close)

    def _start(self) -> None:
        with self._opening:
            self._depth += 1
            if self._loop is None:
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
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
        self._loop = self._thread = self._pid = None
