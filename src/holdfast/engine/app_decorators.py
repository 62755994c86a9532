"""The decorators `app.task` and `app.workflow`, which declare types of tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from holdfast.domain.errors import DeclarationError
from holdfast.domain.task.retry import Retry
from holdfast.encoding.codec import Codec
from holdfast.engine import registry_entries
from holdfast.engine.declare import (
    AsyncCall,
    AsyncTask,
    BareAsyncCall,
    FunctionTask,
    SyncTask,
    TaskDecorator,
    Workflow,
)
from holdfast.engine.options import NOT_GIVEN, complete_options, show_options
from holdfast.engine.registry_entries import TaskOptions, WorkflowOptions
from holdfast.runtime.context import Context

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

P = TypeVar("P")
R = TypeVar("R")


class TaskDeclarer:
    """Declares tasks of one function, as ``@app.task``."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    @overload
    def __call__(self, call: AsyncCall[P, R], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, call: BareAsyncCall[R], /) -> AsyncTask[None, R]: ...

    @overload
    def __call__(self, call: Callable[[Context, P], R], /) -> SyncTask[P, R]: ...

    @overload
    def __call__(self, call: Callable[[Context], R], /) -> SyncTask[None, R]: ...

    @overload
    def __call__(self, name: str = ..., **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    @show_options(TaskOptions)
    def __call__(self, name: Any = NOT_GIVEN, **options: Any) -> Any:
        """Declare an async function, or a plain one that runs in a thread, as a task.

        ``@app.task`` and ``@app.task(retry=Retry(max=5))`` name it as the function is named,
        ``@app.task("mail.send")`` gives it a name of its own.
        """
        terms = complete_options(TaskOptions, options, DeclarationError)
        if callable(name):
            return self._declare(name, NOT_GIVEN, terms)
        return lambda call: self._declare(call, name, terms)

    def _declare(self, call: Callable[..., Any], name: Any, terms: TaskOptions) -> Any:
        app = self._app
        stage = registry_entries.define_stage(
            call,
            name=None,
            timeout_seconds=registry_entries.stage_timeout(app.settings, terms["timeout"]),
            retry=registry_entries.retry_or(Retry(), terms["retry"]),
            result_limit_bytes=app.settings.payload_limit,
        )
        declared = registry_entries.define_type(
            app.settings,
            stage.name if name is NOT_GIVEN else name,
            terms,
            payload=registry_entries.payload_type(call),
            result=stage.result,
            workflow=False,
        )
        app.registry.add(declared)
        declared.add(stage)
        return FunctionTask(app, declared, call)


class WorkflowDeclarer:
    """Declares tasks of many stages, as ``upgrade = app.workflow("tenant.upgrade")``."""

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

    @show_options(WorkflowOptions)
    def __call__(
        self,
        name: str,
        *,
        payload: Any = Any,
        result: Any = Any,
        **options: Unpack[WorkflowOptions],
    ) -> Any:
        """Declare a task of many stages, and add them in order with ``@upgrade.stage``.

        ``payload`` and ``result`` are types, by which both are checked; without them any JSON goes.
        """
        terms = complete_options(WorkflowOptions, options, DeclarationError)
        app, retry = self._app, registry_entries.retry_or(Retry(), terms["retry"])
        declared = registry_entries.define_type(
            app.settings,
            name,
            terms,
            payload=payload,
            result=Codec(result, limit_bytes=app.settings.payload_limit),
            workflow=True,
            checkpoints=registry_entries.checkpoint_policy(
                terms["on_invalid"], terms["checkpoint_max_age"]
            ),
        )
        app.registry.add(declared)
        return Workflow(app, declared, retry)
