"""The app for code without an event loop: one loop thread, the same calls."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from holdfast.domain.errors import HoldfastError
from holdfast.engine.operations.checkpoints import NOT_GIVEN, Checkpoints
from holdfast.engine.operations.control import Control
from holdfast.engine.operations.queues import Queues
from holdfast.engine.operations.tenants import Tenants
from holdfast.engine.query import Query

if TYPE_CHECKING:
    from holdfast.domain.task.envelope import TaskEnvelope
    from holdfast.domain.task.state import Status
    from holdfast.engine.blocking.bulk import BlockingBulks
    from holdfast.engine.blocking.plans import BlockingPlans
    from holdfast.engine.blocking.triggers import BlockingSchedules
    from holdfast.engine.core import Holdfast
    from holdfast.engine.declare import Submittable
    from holdfast.engine.handle import Handle, Info
    from holdfast.engine.operations.retention import Pruned, PruneTerms
    from holdfast.ports import Kept
    from holdfast.ports.backup import Copy

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")
A = ParamSpec("A")


class Blocking:
    """``app.blocking.submit(send, "x").result(30)`` waits. The first call opens the app, which
    stays open until the process ends or ``close()``; ``with app.blocking:`` opens and closes it.
    """

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._depth = self._entered = 0
        self._pid: int | None = None  # of the process that has opened it
        self._opening = threading.RLock()
        self._opened_by_itself = False

    def __enter__(self) -> Blocking:
        with self._opening:
            self._start()
            try:
                self._run(self._app.__aenter__())
            except BaseException:
                self._stop()
                raise
            self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self._app.__aexit__(None, None, None))
        finally:
            self._leave()

    def close(self) -> None:
        """Close what the first call opened; the next call opens it again."""
        with self._opening:
            if self._opened_by_itself:
                self._opened_by_itself = False
                atexit.unregister(self.close)
                self.__exit__()

    @contextmanager
    def running(self, workers: int = 1, **options: Any) -> Iterator[Blocking]:
        """Open, with workers in the loop thread."""
        entered: AbstractAsyncContextManager[Any] = self._app.running(workers, **options)
        with self._opening:
            self._start()
            try:
                self._run(entered.__aenter__())
            except BaseException:
                self._stop()
                raise
            self._entered += 1
        try:
            yield self
        finally:
            try:
                self._run(entered.__aexit__(None, None, None))
            finally:
                self._leave()

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

    def backup(self, target: str | os.PathLike[str]) -> Copy:
        """Copy an SQLite store into a new file, as it is now, while everything goes on."""
        return self.call(self._app.backup(target))

    def prune(self, *kinds: Kept | str, **terms: Unpack[PruneTerms]) -> Pruned:
        """Delete what has ended, or count it (see ``Holdfast.prune``)."""
        return self.call(self._app.prune(*kinds, **terms))

    @property
    def control(self) -> BlockingControl:
        return BlockingControl(self, self._app.control)

    @property
    def plan(self) -> BlockingPlans:
        from holdfast.engine.blocking.plans import BlockingPlans

        return BlockingPlans(self, self._app.plan)

    @property
    def bulk(self) -> BlockingBulks:
        from holdfast.engine.blocking.bulk import BlockingBulks

        return BlockingBulks(self, self._app.bulk)

    @property
    def schedule(self) -> BlockingSchedules:
        from holdfast.engine.blocking.triggers import BlockingSchedules

        return BlockingSchedules(self, self._app.schedule)

    @property
    def tenants(self) -> BlockingTenants:
        return BlockingTenants(self, self._app.tenants)

    @property
    def queues(self) -> BlockingQueues:
        return BlockingQueues(self, self._app.queues)

    @property
    def checkpoints(self) -> BlockingCheckpoints:
        return BlockingCheckpoints(self, self._app.checkpoints)

    @property
    def query(self) -> BlockingQuery:
        return BlockingQuery(self, self._app.query)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine of the app on its loop and wait for it."""
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
            self.__enter__()
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

    def _leave(self) -> None:
        with self._opening:
            self._entered -= 1
            self._stop()


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

    def amend(
        self,
        *,
        payload: Any = NOT_GIVEN,
        data: Mapping[str, Any] | None = None,
        reason: str = "",
        force: bool = False,
    ) -> Status:
        return self._face.call(
            self._handle.amend(payload=payload, data=data, reason=reason, force=force)
        )


class Side(Generic[T]):
    """One part of the app, seen from outside its loop."""

    def __init__(self, face: Blocking, part: T) -> None:
        self.face = face
        self.part = part


def blocked(
    method: Callable[Concatenate[T, A], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Side[T], A], R]:
    @wraps(method)
    def call(self: Side[T], /, *arguments: A.args, **options: A.kwargs) -> R:
        return self.face.call(method(self.part, *arguments, **options))

    return call


class BlockingControl(Side[Control]):
    def acting_as(self, actor: str, origin: str = "") -> BlockingControl:
        return BlockingControl(self.face, self.part.acting_as(actor, origin))

    pause = blocked(Control.pause)
    resume = blocked(Control.resume)
    cancel = blocked(Control.cancel)
    retry = blocked(Control.retry)
    rollback = blocked(Control.rollback)
    discard = blocked(Control.discard)
    release = blocked(Control.release)
    resume_suspended = blocked(Control.resume_suspended)
    can = blocked(Control.can)


class BlockingQueues(Side[Queues]):
    def acting_as(self, actor: str, origin: str = "") -> BlockingQueues:
        return BlockingQueues(self.face, self.part.acting_as(actor, origin))

    pause = blocked(Queues.pause)
    resume = blocked(Queues.resume)
    known = blocked(Queues.known)


class BlockingCheckpoints(Side[Checkpoints]):
    def acting_as(self, actor: str, origin: str = "") -> BlockingCheckpoints:
        return BlockingCheckpoints(self.face, self.part.acting_as(actor, origin))

    get = blocked(Checkpoints.get)
    put = blocked(Checkpoints.put)
    remove = blocked(Checkpoints.remove)
    amend = blocked(Checkpoints.amend)


class BlockingTenants(Side[Tenants]):
    def acting_as(self, actor: str, origin: str = "") -> BlockingTenants:
        return BlockingTenants(self.face, self.part.acting_as(actor, origin))

    hold = blocked(Tenants.hold)
    release = blocked(Tenants.release)
    exists = blocked(Tenants.exists)
    find = blocked(Tenants.find)
    holds = blocked(Tenants.holds)


class BlockingQuery(Side[Query]):
    query_task_status_by_tenant = blocked(Query.query_task_status_by_tenant)
    query_task_status_by_tenants = blocked(Query.query_task_status_by_tenants)
    query_plan_status = blocked(Query.query_plan_status)
    transitions = blocked(Query.transitions)
    has_checkpoint = blocked(Query.has_checkpoint)
    retry_task_by_tenant = blocked(Query.retry_task_by_tenant)
