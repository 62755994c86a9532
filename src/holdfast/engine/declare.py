"""Tasks, workflows and stages as a user writes them, typed through to payload and result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    get_type_hints,
    overload,
)

from holdfast.domain.durations import seconds
from holdfast.domain.errors import DeclarationError
from holdfast.domain.task.checkpoint import RESTART, SUSPEND, Policy
from holdfast.domain.task.retry import Retry
from holdfast.encoding.codec import Codec
from holdfast.engine import signatures
from holdfast.engine.triggers.declared_triggers import Timed
from holdfast.registry import StageDef, TaskType, UndoDef
from holdfast.runtime.context import Context

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast
    from holdfast.engine.handle import Handle
    from holdfast.engine.plans.create import Planned

P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")
N = TypeVar("N", bound=Callable[..., Any])

AsyncCall: TypeAlias = Callable[[Context, P], Coroutine[Any, Any, R]]
BareAsyncCall: TypeAlias = Callable[[Context], Coroutine[Any, Any, R]]


class WorkflowOptions(TypedDict, total=False):
    retry: Retry  # for stages that have none of their own
    queue: str
    hold: bool  # keep the tenant's line closed while it rests unsettled
    keep: float | str  # how long the record stays after it has settled
    on_invalid: str  # "suspend" or "restart", for a checkpoint that is no good
    checkpoint_max_age: float | str  # older ones are no good; without it none is too old
    effects: str  # "task" or "key": what ctx.key goes by; with "key" each submit needs one


class Submittable(Timed[P], Generic[P, R]):
    """What can be submitted: a task or a workflow."""

    def __init__(self, app: Holdfast, declared: TaskType) -> None:
        super().__init__(app, declared)

    @property
    def name(self) -> str:
        return self.declared.name

    @overload
    async def submit(
        self: Submittable[None, R],
        payload: None = None,
        *,
        tenant: str | None = None,
        key: str | None = None,
        queue: str | None = None,
        trace_id: str | None = None,
        user: Any = None,
        callback: str | None = None,
    ) -> Handle[R]: ...

    @overload
    async def submit(
        self,
        payload: P,
        *,
        tenant: str | None = None,
        key: str | None = None,
        queue: str | None = None,
        trace_id: str | None = None,
        user: Any = None,
        callback: str | None = None,
    ) -> Handle[R]: ...

    def submit(self, payload: Any = None, **options: Any) -> Coroutine[Any, Any, Handle[R]]:
        """Durable when this returns. The same tenant and key give the first task again.

        ``callback`` is a URL that is told when the task has ended or waits for a person.
        """
        return self._app.submit(self.declared, payload, **options)

    @overload
    def on(
        self: Submittable[None, R],
        payload: None = None,
        *,
        tenant: str | None = None,
        queue: str | None = None,
        trace_id: str | None = None,
        user: Any = None,
        callback: str | None = None,
    ) -> Planned: ...

    @overload
    def on(
        self,
        payload: P,
        *,
        tenant: str | None = None,
        queue: str | None = None,
        trace_id: str | None = None,
        user: Any = None,
        callback: str | None = None,
    ) -> Planned: ...

    def on(
        self,
        payload: Any = None,
        *,
        tenant: str | None = None,
        queue: str | None = None,
        trace_id: str | None = None,
        user: Any = None,
        callback: str | None = None,
    ) -> Planned:
        """A task for a plan: ``app.plan("upgrade-7", [upgrade.on(order, tenant=t) for t in …])``"""
        return self._app.planned(
            self.declared,
            payload,
            tenant=tenant,
            queue=queue,
            trace_id=trace_id,
            user=user,
            callback=callback,
        )

    async def submit_many(
        self,
        payloads: Iterable[P],
        *,
        keys: Iterable[str] | None = None,
        tenant: str | None = None,
        queue: str | None = None,
        trace_id: str | None = None,
        user: Any = None,
        callback: str | None = None,
    ) -> list[Handle[R]]:
        """One task for each payload, in their order; ``keys`` has one for each.

        A payload that is no good refuses the whole call. SubmittedInPart says which ones were
        accepted when others were not.
        """
        return await self._app.submit_many(
            self.declared,
            payloads,
            keys=keys,
            tenant=tenant,
            queue=queue,
            trace_id=trace_id,
            user=user,
            callback=callback,
        )


class AsyncTask(Submittable[P, R]):
    """A task of one async function. A plain call of it is a plain call."""

    def __init__(self, app: Holdfast, declared: TaskType, call: Callable[..., Any]) -> None:
        super().__init__(app, declared)
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __call__(self: AsyncTask[None, R], ctx: Context, /) -> Coroutine[Any, Any, R]: ...

    @overload
    def __call__(self, ctx: Context, payload: P, /) -> Coroutine[Any, Any, R]: ...

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


class SyncTask(Submittable[P, R]):
    """A task of one plain function; it runs in a thread. A plain call of it is a plain call."""

    def __init__(self, app: Holdfast, declared: TaskType, call: Callable[..., Any]) -> None:
        super().__init__(app, declared)
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __call__(self: SyncTask[None, R], ctx: Context, /) -> R: ...

    @overload
    def __call__(self, ctx: Context, payload: P, /) -> R: ...

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


class Stage(Generic[P, R]):
    """A stage of a workflow; `ctx.result_of` takes it, and `undo` declares its rollback."""

    def __init__(self, defined: StageDef, of: TaskType | None = None) -> None:
        self._defined = defined
        self._of = of  # the workflow
        self.__doc__ = defined.call.__doc__

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
        takes_payload = _takes_payload(call)
        signatures.check_context(call, _hints(call))
        if takes_payload and self._of is not None:
            signatures.check_payload(call, _hints(call), self._of.payload.declared, self._of.name)
        self._defined.undo = UndoDef(call, inspect.iscoroutinefunction(call), takes_payload)
        return call


class AsyncStage(Stage[P, R]):
    @overload
    def __call__(self: AsyncStage[None, R], ctx: Context, /) -> Coroutine[Any, Any, R]: ...

    @overload
    def __call__(self, ctx: Context, payload: P, /) -> Coroutine[Any, Any, R]: ...

    def __call__(self, *arguments: Any) -> Any:
        return self._defined.call(*arguments)


class SyncStage(Stage[P, R]):
    @overload
    def __call__(self: SyncStage[None, R], ctx: Context, /) -> R: ...

    @overload
    def __call__(self, ctx: Context, payload: P, /) -> R: ...

    def __call__(self, *arguments: Any) -> Any:
        return self._defined.call(*arguments)


class TaskDecorator(Protocol):
    @overload
    def __call__(self, call: AsyncCall[P, R], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, call: BareAsyncCall[R], /) -> AsyncTask[None, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, call: Callable[[Context, P], R], /) -> SyncTask[P, R]: ...

    @overload
    def __call__(self, call: Callable[[Context], R], /) -> SyncTask[None, R]: ...


class StageDecorator(Protocol[P]):
    @overload
    def __call__(self, call: AsyncCall[P, R], /) -> AsyncStage[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, call: BareAsyncCall[R], /) -> AsyncStage[None, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, call: Callable[[Context, P], R], /) -> SyncStage[P, R]: ...

    @overload
    def __call__(self, call: Callable[[Context], R], /) -> SyncStage[None, R]: ...


class Workflow(Submittable[P, R]):
    """Many stages, in the order of their declaration. The last one's return is the result."""

    def __init__(self, app: Holdfast, declared: TaskType, retry: Retry) -> None:
        super().__init__(app, declared)
        self._retry = retry

    @overload
    def stage(self, call: AsyncCall[P, S], /) -> AsyncStage[P, S]: ...  # type: ignore[overload-overlap]

    @overload
    def stage(self, call: BareAsyncCall[S], /) -> AsyncStage[None, S]: ...  # type: ignore[overload-overlap]

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

    def stage(self, call: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Add a stage, as ``@upgrade.stage`` or ``@upgrade.stage(timeout="10m")``."""
        if call is not None:
            return self._add(call)
        return lambda function: self._add(function, **options)

    def _add(
        self,
        call: Callable[..., Any],
        *,
        name: str | None = None,
        timeout: float | str | None = None,
        retry: Retry | None = None,
    ) -> Any:
        defined = define_stage(
            call,
            name=name,
            timeout_seconds=self._app.stage_timeout(timeout),
            retry=retry_or(self._retry, retry),
            result_limit_bytes=self.declared.result.limit_bytes,
        )
        if defined.takes_payload:
            declared = self.declared
            signatures.check_payload(call, _hints(call), declared.payload.declared, declared.name)
        self.declared.add(defined)
        return (AsyncStage if defined.is_async else SyncStage)(defined, self.declared)


def retry_or(default: Retry, given: Retry | None) -> Retry:
    if given is None:
        return default
    if not isinstance(given, Retry):
        raise DeclarationError(f"retry={given!r}: write Retry(max=…)")
    return given


def check_options(options: Mapping[str, object]) -> None:
    if unknown := sorted(options.keys() - WorkflowOptions.__optional_keys__):
        known = ", ".join(sorted(WorkflowOptions.__optional_keys__))
        raise DeclarationError(f"no such option: {', '.join(unknown)} (there are {known})")


def checkpoint_policy(on_invalid: str, max_age: float | str | None) -> Policy:
    if on_invalid not in (SUSPEND, RESTART):
        raise DeclarationError(f"on_invalid={on_invalid!r}: {SUSPEND} or {RESTART}")
    age = None if max_age is None else seconds(max_age)
    if age is not None and age <= 0:
        raise DeclarationError(f"checkpoint_max_age={max_age!r} is not above zero")
    return Policy(on_invalid=on_invalid, max_age_seconds=age)


def define_stage(
    call: Callable[..., Any],
    *,
    name: str | None,
    timeout_seconds: float,
    retry: Retry,
    result_limit_bytes: int,
) -> StageDef:
    takes_payload = _takes_payload(call)
    hints = _hints(call)
    signatures.check_context(call, hints)
    returned = hints.get("return", Any)
    name = name or _name_of(call)
    result: Codec[Any] = Codec(
        type(None) if returned is None else returned,
        limit_bytes=result_limit_bytes,
        what=f"result of {name}",
    )
    return StageDef(
        name=name,
        call=call,
        is_async=inspect.iscoroutinefunction(call),
        takes_payload=takes_payload,
        retry=retry,
        timeout_seconds=timeout_seconds,
        result=result,
    )


def payload_type(call: Callable[..., Any]) -> Any:
    """What a one-stage task takes: the annotation of its second parameter."""
    if not _takes_payload(call):
        return type(None)
    parameter = list(inspect.signature(call).parameters.values())[1]
    return _hints(call).get(parameter.name, Any)


def _takes_payload(call: Callable[..., Any]) -> bool:
    if not inspect.isfunction(call) and not inspect.ismethod(call):
        raise DeclarationError(f"{call!r} is not a function; wrap it in one")
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise DeclarationError(f"{_name_of(call)} is a generator; a stage returns once")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    taken = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    demanded = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not 1 <= len(taken) <= 2 or demanded:
        raise DeclarationError(
            f"{_name_of(call)} must take a Context and at most one payload; "
            "for several values use a dataclass or a model"
        )
    return len(taken) == 2


def _hints(call: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(call, include_extras=True)
    except NameError as error:
        raise DeclarationError(
            f"{_name_of(call)}: its annotations cannot be read ({error}); "
            "declare the types at the module's top level"
        ) from error


def _name_of(call: Callable[..., Any]) -> str:
    return getattr(call, "__name__", repr(call))
