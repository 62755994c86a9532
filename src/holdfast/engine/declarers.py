"""The declarers behind `app.task` and `app.workflow`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from holdfast.domain.errors import DeclarationError
from holdfast.domain.task.checkpoint import SUSPEND
from holdfast.domain.task.retry import Retry
from holdfast.encoding.codec import Codec
from holdfast.engine import definitions
from holdfast.engine.declare import (
    AsyncCall,
    AsyncTask,
    BareAsyncCall,
    SyncTask,
    TaskDecorator,
    Workflow,
)
from holdfast.runtime.context import Context

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

P = TypeVar("P")
R = TypeVar("R")

_NO_NAME: Any = object()


class TaskOptions(TypedDict, total=False):
    retry: Retry | None
    timeout: float | str | None  # of one attempt
    queue: str
    hold: bool  # keep the tenant's line closed while it rests unsettled
    keep: float | str | None  # how long the record stays after it has settled
    effects: str  # "task" or "key": what ctx.key goes by; with "key" each submit needs one


class WorkflowOptions(TypedDict, total=False):
    retry: Retry  # for stages that have none of their own
    queue: str
    hold: bool  # keep the tenant's line closed while it rests unsettled
    keep: float | str  # how long the record stays after it has settled
    on_invalid: str  # "suspend" or "restart", for a checkpoint that is no good
    checkpoint_max_age: float | str  # older ones are no good; without it none is too old
    effects: str  # "task" or "key": what ctx.key goes by; with "key" each submit needs one


class TaskDeclarer:
    """Declares an async function, or a plain one that runs in a thread, as a task::

    @app.task                        # its name is the function's
    @app.task(retry=Retry(max=5))    # so is this one's
    @app.task("mail.send")
    """

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    @overload
    def __call__(self, call: AsyncCall[P, R], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, call: BareAsyncCall[R], /) -> AsyncTask[None, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, call: Callable[[Context, P], R], /) -> SyncTask[P, R]: ...

    @overload
    def __call__(self, call: Callable[[Context], R], /) -> SyncTask[None, R]: ...

    @overload
    def __call__(self, name: str, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    @overload
    def __call__(self, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def __call__(self, name: Any = _NO_NAME, **options: Any) -> Any:
        _check_options(options, TaskOptions.__optional_keys__)
        if callable(name):
            return self._declare(name, _NO_NAME, options)
        return lambda call: self._declare(call, name, options)

    def _declare(self, call: Callable[..., Any], name: Any, options: dict[str, Any]) -> Any:
        app = self._app
        stage = definitions.define_stage(
            call,
            name=None,
            timeout_seconds=definitions.stage_timeout(app.settings, options.get("timeout")),
            retry=definitions.retry_or(Retry(), options.get("retry")),
            result_limit_bytes=app.settings.payload_limit,
        )
        declared = definitions.define_type(
            app.settings,
            stage.name if name is _NO_NAME else name,
            payload=definitions.payload_type(call),
            result=stage.result,
            queue=options.get("queue", "default"),
            hold=options.get("hold", False),
            keep=options.get("keep"),
            workflow=False,
            effects=options.get("effects", "task"),
        )
        app.registry.add(declared)
        declared.add(stage)
        return (AsyncTask if stage.is_async else SyncTask)(app, declared, call)


class WorkflowDeclarer:
    """Declares a task of many stages; ``@that.stage`` adds them in order."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    @overload
    def __call__(
        self, name: str, *, payload: type[P], result: type[R], **options: Unpack[WorkflowOptions]
    ) -> Workflow[P, R]: ...

    @overload
    def __call__(
        self, name: str, *, payload: type[P], **options: Unpack[WorkflowOptions]
    ) -> Workflow[P, Any]: ...

    @overload
    def __call__(
        self, name: str, *, result: type[R], **options: Unpack[WorkflowOptions]
    ) -> Workflow[Any, R]: ...

    @overload
    def __call__(self, name: str, **options: Unpack[WorkflowOptions]) -> Workflow[Any, Any]: ...

    def __call__(
        self,
        name: str,
        *,
        payload: Any = Any,
        result: Any = Any,
        **options: Unpack[WorkflowOptions],
    ) -> Any:
        _check_options(options, WorkflowOptions.__optional_keys__)
        app, retry = self._app, definitions.retry_or(Retry(), options.get("retry"))
        declared = definitions.define_type(
            app.settings,
            name,
            payload=payload,
            result=Codec(result, limit_bytes=app.settings.payload_limit),
            queue=options.get("queue", "default"),
            hold=options.get("hold", True),
            keep=options.get("keep"),
            workflow=True,
            checkpoints=definitions.checkpoint_policy(
                options.get("on_invalid", SUSPEND), options.get("checkpoint_max_age")
            ),
            effects=options.get("effects", "task"),
        )
        app.registry.add(declared)
        return Workflow(app, declared, retry)


def _check_options(options: Mapping[str, object], known: frozenset[str]) -> None:
    if unknown := sorted(options.keys() - known):
        there = ", ".join(sorted(known))
        raise DeclarationError(f"no such option: {', '.join(unknown)} (there are {there})")
