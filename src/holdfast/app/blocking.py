"""The app for code without an event loop: one loop thread, the same calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from holdfast.app.control import Control
from holdfast.app.query import Query
from holdfast.app.schedule import Schedules
from holdfast.app.timed import TriggerTerms
from holdfast.app.triggers import TriggerHandle
from holdfast.domain.errors import HoldfastError

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.app.blocking_plans import BlockingPlans
    from holdfast.app.core import Holdfast
    from holdfast.app.declare import Submittable
    from holdfast.app.handle import Handle, Info
    from holdfast.domain.envelope import TaskEnvelope
    from holdfast.domain.state import Status
    from holdfast.domain.trigger import Trigger, TriggerStatus

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")
A = ParamSpec("A")


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
    def running(self, workers: int = 1, **options: Any) -> Iterator[Blocking]:
        """Open, with workers in the loop thread."""
        self._start()
        try:
            entered: AbstractAsyncContextManager[Any] = self._app.running(workers, **options)
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

    def submit_many(
        self, what: Submittable[P, R], payloads: Iterable[P], **options: Any
    ) -> list[BlockingHandle[R]]:
        handles = self.call(what.submit_many(payloads, **options))
        return [BlockingHandle(self, handle) for handle in handles]

    def handle(self, task_id: str) -> BlockingHandle[Any]:
        """A handle for a task that was submitted elsewhere; its result is plain JSON."""
        return BlockingHandle(self, self._app.handle(task_id))

    def why(self, task_id: str) -> str:
        return self.call(self._app.why(task_id))

    @property
    def control(self) -> BlockingControl:
        return BlockingControl(self, self._app.control)

    @property
    def plan(self) -> BlockingPlans:
        from holdfast.app.blocking_plans import BlockingPlans

        return BlockingPlans(self, self._app.plan)

    @property
    def schedule(self) -> BlockingSchedules:
        return BlockingSchedules(self, self._app.schedule)

    @property
    def query(self) -> BlockingQuery:
        return BlockingQuery(self, self._app.query)

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
    __slots__ = ("_face", "_handle", "id")

    def __init__(self, face: Blocking, handle: Handle[R]) -> None:
        self._face = face
        self._handle = handle
        self.id = handle.id

    def result(self, timeout: float | str | None = None) -> R:
        return self._face.call(self._handle.result(timeout))

    def info(self) -> Info:
        return self._face.call(self._handle.info())

    def envelope(self) -> TaskEnvelope:
        return self._face.call(self._handle.envelope())

    def why(self) -> str:
        return self._face.call(self._handle.why())

    def pause(self, reason: str = "") -> Status:
        return self._face.call(self._handle.pause(reason))

    def resume(self, reason: str = "", *, force: bool = False) -> Status:
        return self._face.call(self._handle.resume(reason, force=force))

    def cancel(self, reason: str = "") -> Status:
        return self._face.call(self._handle.cancel(reason))

    def retry(
        self, reason: str = "", *, from_checkpoint: bool = True, force: bool = False
    ) -> Status:
        return self._face.call(
            self._handle.retry(reason, from_checkpoint=from_checkpoint, force=force)
        )

    def rollback(self, reason: str = "", *, force: bool = False) -> Status:
        return self._face.call(self._handle.rollback(reason, force=force))

    def discard(self, reason: str = "") -> Status:
        return self._face.call(self._handle.discard(reason))


class _Side(Generic[T]):
    """One part of the app, seen from outside its loop."""

    def __init__(self, face: Blocking, part: T) -> None:
        self.face = face
        self.part = part


def _blocking(
    method: Callable[Concatenate[T, A], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Side[T], A], R]:
    @wraps(method)
    def call(self: _Side[T], /, *arguments: A.args, **options: A.kwargs) -> R:
        return self.face.call(method(self.part, *arguments, **options))

    return call


class BlockingControl(_Side[Control]):
    def acting_as(self, actor: str, origin: str = "") -> BlockingControl:
        return BlockingControl(self.face, self.part.acting_as(actor, origin))

    pause = _blocking(Control.pause)
    resume = _blocking(Control.resume)
    cancel = _blocking(Control.cancel)
    retry = _blocking(Control.retry)
    rollback = _blocking(Control.rollback)
    discard = _blocking(Control.discard)
    release = _blocking(Control.release)
    resume_suspended = _blocking(Control.resume_suspended)
    can = _blocking(Control.can)


class BlockingQuery(_Side[Query]):
    query_task_status_by_tenant = _blocking(Query.query_task_status_by_tenant)
    query_task_status_by_tenants = _blocking(Query.query_task_status_by_tenants)
    query_plan_status = _blocking(Query.query_plan_status)
    has_checkpoint = _blocking(Query.has_checkpoint)
    retry_task_by_tenant = _blocking(Query.retry_task_by_tenant)


class BlockingTrigger(Generic[R]):
    __slots__ = ("_face", "_handle", "id")

    def __init__(self, face: Blocking, handle: TriggerHandle[R]) -> None:
        self._face = face
        self._handle = handle
        self.id = handle.id

    def info(self) -> Trigger:
        return self._face.call(self._handle.info())

    def next(self, count: int = 1) -> list[datetime]:
        return self._face.call(self._handle.next(count))

    def fire(self, reason: str = "") -> BlockingHandle[R]:
        return BlockingHandle(self._face, self._face.call(self._handle.fire(reason)))

    def pause(self, reason: str = "") -> TriggerStatus:
        return self._face.call(self._handle.pause(reason))

    def resume(self, reason: str = "") -> TriggerStatus:
        return self._face.call(self._handle.resume(reason))

    def cancel(self, reason: str = "") -> TriggerStatus:
        return self._face.call(self._handle.cancel(reason))


class BlockingSchedules(_Side[Schedules]):
    """As `Schedules`; its triggers block, too."""

    def acting_as(self, actor: str, origin: str = "") -> BlockingSchedules:
        return BlockingSchedules(self.face, self.part.acting_as(actor, origin))

    page = _blocking(Schedules.page)

    @overload
    def at(
        self,
        when: datetime | float,
        send: Submittable[None, R],
        payload: None = None,
        *,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    @overload
    def at(
        self,
        when: datetime | float,
        send: Submittable[P, R],
        payload: P,
        *,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    def at(
        self,
        when: datetime | float,
        send: Submittable[Any, R],
        payload: Any = None,
        *,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]:
        made = self.part.at(when, send, payload, replace=replace, **terms)
        return self._face_of(made)

    @overload
    def every(
        self,
        interval: float | str,
        send: Submittable[None, R],
        payload: None = None,
        *,
        start: datetime | float | None = None,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    @overload
    def every(
        self,
        interval: float | str,
        send: Submittable[P, R],
        payload: P,
        *,
        start: datetime | float | None = None,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    def every(
        self,
        interval: float | str,
        send: Submittable[Any, R],
        payload: Any = None,
        *,
        start: datetime | float | None = None,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]:
        made = self.part.every(interval, send, payload, start=start, replace=replace, **terms)
        return self._face_of(made)

    @overload
    def cron(
        self,
        expression: str,
        send: Submittable[None, R],
        payload: None = None,
        *,
        tz: str = "UTC",
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    @overload
    def cron(
        self,
        expression: str,
        send: Submittable[P, R],
        payload: P,
        *,
        tz: str = "UTC",
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    def cron(
        self,
        expression: str,
        send: Submittable[Any, R],
        payload: Any = None,
        *,
        tz: str = "UTC",
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]:
        made = self.part.cron(expression, send, payload, tz=tz, replace=replace, **terms)
        return self._face_of(made)

    def get(self, name: str, *, tenant: str | None = None) -> BlockingTrigger[Any]:
        return self._face_of(self.part.get(name, tenant=tenant))

    def list(
        self, *, statuses: Sequence[TriggerStatus] = (), tenant: str | None = None
    ) -> Iterator[Trigger]:
        cursor: str | None = None
        while True:
            page = self.page(statuses=statuses, tenant=tenant, cursor=cursor)
            yield from page.triggers
            if (cursor := page.cursor) is None:
                return

    def _face_of(self, made: Coroutine[Any, Any, TriggerHandle[R]]) -> BlockingTrigger[R]:
        return BlockingTrigger(self.face, self.face.call(made))
