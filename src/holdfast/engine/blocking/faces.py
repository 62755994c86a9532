"""The blocking faces: the handles, and the app with its parts. `derive.py` makes their methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
)

from holdfast.engine.blocking.derive import (
    Face,
    blocking,
    blocking_bulk,
    blocking_list,
    blocking_plan,
    blocking_signature,
    blocking_task,
    blocking_tasks,
    blocking_trigger,
    face_of,
)
from holdfast.engine.blocking.loop_thread import LoopThread
from holdfast.engine.bulk.bulks import BulkHandle, Bulks
from holdfast.engine.core import Holdfast
from holdfast.engine.declare import Submittable
from holdfast.engine.handle import Handle
from holdfast.engine.operations.checkpoints import Checkpoints
from holdfast.engine.operations.control import Control
from holdfast.engine.operations.queues import Queues
from holdfast.engine.operations.tenants import Tenants
from holdfast.engine.options import show_options
from holdfast.engine.plans.create import Plans
from holdfast.engine.plans.handle import PlanHandle
from holdfast.engine.query import Query
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.engine.triggers.schedules import Schedules
from holdfast.engine.workers import WorkerTerms

if TYPE_CHECKING:
    from holdfast.domain.trigger.trigger import Trigger, TriggerStatus

T = TypeVar("T")
S = TypeVar("S", bound=Submittable[Any, Any])
R = TypeVar("R")
A = ParamSpec("A")
F = TypeVar("F", bound=Face[Any])


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


H = TypeVar("H", bound=_Identified)


class HandleFace(Face[H]):
    @property
    def id(self) -> str:
        return self._part.id


class BlockingHandle(HandleFace[Handle[R]], Generic[R], of=Handle):
    result = blocking(Handle.result)
    info = blocking(Handle.info)
    envelope = blocking(Handle.envelope)
    why = blocking(Handle.why)
    pause = blocking(Handle.pause)
    resume = blocking(Handle.resume)
    cancel = blocking(Handle.cancel)
    retry = blocking(Handle.retry)
    rollback = blocking(Handle.rollback)
    discard = blocking(Handle.discard)
    amend = blocking(Handle.amend)


class BlockingPlanHandle(HandleFace[PlanHandle], of=PlanHandle):
    info = blocking(PlanHandle.info)
    tasks = blocking_tasks(PlanHandle.tasks)
    events = blocking(PlanHandle.events)
    pause = blocking(PlanHandle.pause)
    resume = blocking(PlanHandle.resume)
    cancel = blocking(PlanHandle.cancel)
    retry = blocking(PlanHandle.retry)
    expired_checkpoints = blocking(PlanHandle.expired_checkpoints)
    forecast = blocking(PlanHandle.forecast)
    rollback = blocking(PlanHandle.rollback)
    wait = blocking(PlanHandle.wait)


class BlockingTrigger(HandleFace[TriggerHandle[R]], Generic[R], of=TriggerHandle):
    info = blocking(TriggerHandle.info)
    next = blocking(TriggerHandle.next)
    fire = blocking_task(TriggerHandle.fire)
    pause = blocking(TriggerHandle.pause)
    resume = blocking(TriggerHandle.resume)
    cancel = blocking(TriggerHandle.cancel)


class BlockingBulkHandle(HandleFace[BulkHandle], of=BulkHandle):
    info = blocking(BulkHandle.info)
    stop = blocking(BulkHandle.stop)
    pause = blocking(BulkHandle.pause)
    resume = blocking(BulkHandle.resume)
    wait = blocking(BulkHandle.wait)


class _Acting(Protocol):
    def acting_as(self, actor: str, origin: str = "") -> Self: ...


P = TypeVar("P", bound=_Acting)


class ActingFace(Face[P]):
    """A part of the app that acts in an actor's name."""

    def acting_as(self, actor: str, origin: str = "") -> Self:
        return type(self)(self._thread, self._part.acting_as(actor, origin))


class BlockingControl(ActingFace[Control]):
    pause = blocking(Control.pause)
    resume = blocking(Control.resume)
    cancel = blocking(Control.cancel)
    retry = blocking(Control.retry)
    rollback = blocking(Control.rollback)
    discard = blocking(Control.discard)
    release = blocking(Control.release)
    resume_suspended = blocking(Control.resume_suspended)
    can = blocking(Control.can)


class BlockingQueues(ActingFace[Queues]):
    pause = blocking(Queues.pause)
    resume = blocking(Queues.resume)
    turn = blocking(Queues.turn)
    names = blocking(Queues.names)


class BlockingCheckpoints(ActingFace[Checkpoints]):
    get = blocking(Checkpoints.get)
    put = blocking(Checkpoints.put)
    remove = blocking(Checkpoints.remove)
    amend = blocking(Checkpoints.amend)


class BlockingTenants(ActingFace[Tenants]):
    hold = blocking(Tenants.hold)
    release = blocking(Tenants.release)
    exists = blocking(Tenants.exists)
    find = blocking(Tenants.find)
    holds = blocking(Tenants.holds)


class BlockingQuery(Face[Query]):
    query_task_status_by_tenant = blocking(Query.query_task_status_by_tenant)
    query_task_status_by_tenants = blocking(Query.query_task_status_by_tenants)
    query_plan_status = blocking(Query.query_plan_status)
    transitions = blocking(Query.transitions)
    has_checkpoint = blocking(Query.has_checkpoint)
    retry_task_by_tenant = blocking(Query.retry_task_by_tenant)


class BlockingBulks(ActingFace[Bulks]):
    preview = blocking(Bulks.preview)
    start = blocking_bulk(Bulks.start)
    get = blocking_bulk(Bulks.get)
    find = blocking(Bulks.find)


class BlockingPlans(ActingFace[Plans]):
    __call__ = blocking_plan(Plans.__call__)
    preview = blocking(Plans.preview)
    find = blocking_list(Plans.find)

    def get(self, plan_id: str) -> BlockingPlanHandle:
        return BlockingPlanHandle(self._thread, self._part.get(plan_id))


class BlockingSchedules(ActingFace[Schedules]):
    at = blocking_trigger(Schedules.at)
    every = blocking_trigger(Schedules.every)
    cron = blocking_trigger(Schedules.cron)
    get = blocking_trigger(Schedules.get)
    page = blocking(Schedules.page)

    def find(
        self, *, statuses: Sequence[TriggerStatus] = (), tenant: str | None = None
    ) -> Iterator[Trigger]:
        """Yield the triggers page by page."""
        cursor: str | None = None
        while True:
            page = self.page(statuses=statuses, tenant=tenant, cursor=cursor)
            yield from page.triggers
            if (cursor := page.cursor) is None:
                return


def _submitting_one(
    method: Callable[Concatenate[S, A], Coroutine[Any, Any, Handle[R]]],
) -> Callable[Concatenate[Blocking, S, A], BlockingHandle[R]]:
    return _submitting(method)


def _submitting_many(
    method: Callable[Concatenate[S, A], Coroutine[Any, Any, list[Handle[R]]]],
) -> Callable[Concatenate[Blocking, S, A], list[BlockingHandle[R]]]:
    return _submitting(method)


def _submitting(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Derive a method of the app from one of a task type, which becomes its first parameter."""

    def submit(self: Blocking, what: Any, /, *arguments: Any, **options: Any) -> Any:
        return face_of(self._thread, self.call(method(what, *arguments, **options)))

    first = list(inspect.signature(submit).parameters.values())[:2]
    shown = blocking_signature(method)
    derived = wraps(method)(submit)
    parameters = [*first, *list(shown.parameters.values())[1:]]
    derived.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]
    return derived


class _PartFace(Generic[F]):
    """A part of the app as an attribute of its blocking face, under the same name."""

    def __init__(self, face: type[F]) -> None:
        self._face = face

    def __set_name__(self, owner: type[Face[Holdfast]], name: str) -> None:
        self._name = name

    def __get__(self, app: Face[Holdfast], owner: object = None) -> F:
        return self._face(app._thread, getattr(app._part, self._name))


class Blocking(Face[Holdfast]):
    """The app for code without an event loop: ``app.blocking.submit(send, "x").result(30)``.

    The first call opens the app, which stays open until the process ends or ``close()``; ``with
    app.blocking:`` opens and closes it."""

    def __init__(self, app: Holdfast) -> None:
        super().__init__(LoopThread(app), app)

    def __enter__(self) -> Blocking:
        self._thread.enter(self._part)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.leave(self._part)

    def close(self) -> None:
        """Close what the first call opened; the next call opens it again."""
        self._thread.close()

    @contextmanager
    @show_options(WorkerTerms)
    def running(self, workers: int = 1, **options: Unpack[WorkerTerms]) -> Iterator[Blocking]:
        """Open the app with workers in the loop thread; drain them at the end."""
        entered = self._part.running(workers, **options)
        self._thread.enter(entered)
        try:
            yield self
        finally:
            self._thread.leave(entered)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine of the app on its loop and wait for it."""
        return self._thread.call(coroutine)

    submit = _submitting_one(Submittable.submit)
    submit_many = _submitting_many(Submittable.submit_many)
    why = blocking(Holdfast.why)
    backup = blocking(Holdfast.backup)
    prune = blocking(Holdfast.prune)

    def handle(self, task_id: str) -> BlockingHandle[Any]:
        """Return a handle for a task that was submitted elsewhere; its result is plain JSON."""
        return BlockingHandle(self._thread, self._part.handle(task_id))

    control = _PartFace(BlockingControl)
    plan = _PartFace(BlockingPlans)
    bulk = _PartFace(BlockingBulks)
    schedule = _PartFace(BlockingSchedules)
    tenants = _PartFace(BlockingTenants)
    queues = _PartFace(BlockingQueues)
    checkpoints = _PartFace(BlockingCheckpoints)
    query = _PartFace(BlockingQuery)
