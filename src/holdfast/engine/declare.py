"""Tasks, workflows and stages as a user writes them, typed through to payload and result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from holdfast.domain.errors import DeclarationError
from holdfast.domain.task.retry import Retry
from holdfast.encoding.codec import Codec
from holdfast.engine import registry_entries, stage_functions
from holdfast.engine.options import Option, check_options, show_options
from holdfast.engine.triggers.declared_triggers import Schedulable
from holdfast.registry import StageDef, TaskType, UndoDef
from holdfast.runtime.context import Context

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast
    from holdfast.engine.handle import Handle
    from holdfast.engine.plans.create import Planned

P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")
C = TypeVar("C")  # what a plain call returns
N = TypeVar("N", bound=Callable[..., Any])

AsyncCall: TypeAlias = Callable[[Context, P], Coroutine[Any, Any, R]]
BareAsyncCall: TypeAlias = Callable[[Context], Coroutine[Any, Any, R]]


class TaskDescription(TypedDict, total=False):
    tenant: Annotated[str | None, Option(None, "the customer or account that the task belongs to")]
    queue: Annotated[str | None, Option(None, "the queue of the task; None: the queue of its type")]
    trace_id: Annotated[str | None, Option(None, "the trace that the task belongs to")]
    user: Annotated[Any, Option(None, "any JSON value, stored with the task")]
    callback: Annotated[
        str | None,
        Option(None, "a URL that is notified when the task has ended or waits for a person"),
    ]


class SubmitOptions(TaskDescription, total=False):
    key: Annotated[
        str | None,
        Option(None, "a second submission with the same tenant and key finds the first task"),
    ]


class SubmitManyOptions(TaskDescription, total=False):
    keys: Annotated[Iterable[str] | None, Option(None, "one key for each payload")]


class Submittable(Schedulable[P], Generic[P, R]):
    """A task type that can be submitted: a task or a workflow."""

    @property
    def name(self) -> str:
        return self.declared.name

    @overload
    async def submit(
        self: Submittable[None, R], payload: None = None, **options: Unpack[SubmitOptions]
    ) -> Handle[R]: ...

    @overload
    async def submit(self, payload: P, **options: Unpack[SubmitOptions]) -> Handle[R]: ...

    @show_options(SubmitOptions)
    def submit(
        self, payload: Any = None, **options: Unpack[SubmitOptions]
    ) -> Coroutine[Any, Any, Handle[R]]:
        """Submit a task, which is durable when this returns."""
        return self._app.submit(self.declared, payload, **options)

    @overload
    def on(
        self: Submittable[None, R], payload: None = None, **options: Unpack[TaskDescription]
    ) -> Planned: ...

    @overload
    def on(self, payload: P, **options: Unpack[TaskDescription]) -> Planned: ...

    @show_options(TaskDescription)
    def on(self, payload: Any = None, **options: Unpack[TaskDescription]) -> Planned:
        """Describe a task for a plan: ``app.plan("v7", [send.on(to, tenant=t) for t in …])``."""
        check_options(TaskDescription, options, TypeError)
        return self._app.describe_task(self.declared, payload, **options)

    @show_options(SubmitManyOptions)
    async def submit_many(
        self, payloads: Iterable[P], **options: Unpack[SubmitManyOptions]
    ) -> list[Handle[R]]:
        """Submit one task for each payload, in their order.

        An invalid payload refuses the whole call. `SubmittedInPart` says which tasks were accepted
        when others were not.
        """
        check_options(SubmitManyOptions, options, TypeError)
        return await self._app.submit_many(self.declared, payloads, **options)


class PlainCall(Generic[P, C]):
    """A declared function, which a plain call calls without the engine."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __call__(self: PlainCall[None, C], ctx: Context, /) -> C: ...

    @overload
    def __call__(self, ctx: Context, payload: P, /) -> C: ...

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


class FunctionTask(PlainCall[P, C], Submittable[P, R], Generic[P, R, C]):
    """A task of one function; a plain function runs in a thread."""

    def __init__(self, app: Holdfast, declared: TaskType, call: Callable[..., Any]) -> None:
        PlainCall.__init__(self, call)
        Submittable.__init__(self, app, declared)


class Stage(Generic[P, R]):
    """A stage of a workflow; `ctx.result_of` takes it, and `undo` declares its rollback."""

    def __init__(self, defined: StageDef, of: TaskType) -> None:
        self._defined = defined
        self._of = of  # the workflow

    @property
    def name(self) -> str:
        return self._defined.name

    @property
    def result(self) -> Codec[R]:
        return self._defined.result

    def read_result(self, body: bytes, /) -> R:
        return self.result.decode(body)

    def undo(self, call: N) -> N:
        if self._defined.undo is not None:
            raise DeclarationError(f"stage {self.name!r} has two undo functions")
        takes_payload, hints = registry_entries.takes_payload(call), registry_entries.hints_of(call)
        stage_functions.check_context(call, hints)
        if takes_payload:
            stage_functions.check_payload(call, hints, self._of.payload.declared, self._of.name)
        self._defined.undo = UndoDef(call, inspect.iscoroutinefunction(call), takes_payload)
        return call


class FunctionStage(PlainCall[P, C], Stage[P, R], Generic[P, R, C]):
    def __init__(self, defined: StageDef, of: TaskType) -> None:
        PlainCall.__init__(self, defined.call)
        Stage.__init__(self, defined, of)


AsyncTask: TypeAlias = FunctionTask[P, R, Coroutine[Any, Any, R]]
SyncTask: TypeAlias = FunctionTask[P, R, R]
AsyncStage: TypeAlias = FunctionStage[P, R, Coroutine[Any, Any, R]]
SyncStage: TypeAlias = FunctionStage[P, R, R]


class TaskDecorator(Protocol):
    @overload
    def __call__(self, call: AsyncCall[P, R], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, call: BareAsyncCall[R], /) -> AsyncTask[None, R]: ...

    @overload
    def __call__(self, call: Callable[[Context, P], R], /) -> SyncTask[P, R]: ...

    @overload
    def __call__(self, call: Callable[[Context], R], /) -> SyncTask[None, R]: ...


class StageDecorator(Protocol[P]):
    @overload
    def __call__(self, call: AsyncCall[P, R], /) -> AsyncStage[P, R]: ...

    @overload
    def __call__(self, call: BareAsyncCall[R], /) -> AsyncStage[None, R]: ...

    @overload
    def __call__(self, call: Callable[[Context, P], R], /) -> SyncStage[P, R]: ...

    @overload
    def __call__(self, call: Callable[[Context], R], /) -> SyncStage[None, R]: ...


class Workflow(Submittable[P, R]):
    """A task of many stages in the order of their declaration; the last one returns the result."""

    def __init__(self, app: Holdfast, declared: TaskType, retry: Retry) -> None:
        super().__init__(app, declared)
        self._retry = retry

    @overload
    def stage(self, call: AsyncCall[P, S], /) -> AsyncStage[P, S]: ...

    @overload
    def stage(self, call: BareAsyncCall[S], /) -> AsyncStage[None, S]: ...

    @overload
    def stage(self, call: Callable[[Context, P], S], /) -> SyncStage[P, S]: ...

    @overload
    def stage(self, call: Callable[[Context], S], /) -> SyncStage[None, S]: ...

    @overload
    def stage(
        self,
        *,
        name: str | None = None,
        timeout: float | str | None = None,
        retry: Retry | None = None,
    ) -> StageDecorator[P]: ...

    def stage(  # type: ignore[misc]
        self,
        call: Any = None,
        /,
        *,
        name: str | None = None,
        timeout: float | str | None = None,
        retry: Retry | None = None,
    ) -> Any:
        """Add a stage, as ``@upgrade.stage`` or ``@upgrade.stage(timeout="10m")``.

        ``name`` is the function's unless given, ``timeout`` the longest time of one attempt, and
        ``retry`` the workflow's unless given.
        """

        def add(call: Callable[..., Any]) -> Any:
            declared = self.declared
            defined = registry_entries.define_stage(
                call,
                name=name,
                timeout_seconds=registry_entries.stage_timeout(self._app.settings, timeout),
                retry=registry_entries.retry_or(self._retry, retry),
                result_limit_bytes=declared.result.limit_bytes,
            )
            if defined.takes_payload:
                hints, payload = registry_entries.hints_of(call), declared.payload.declared
                stage_functions.check_payload(call, hints, payload, declared.name)
            declared.add(defined)
            return FunctionStage(defined, declared)

        return add if call is None else add(call)
