"""`app.task`: declares a task of one stage, under a name of its own or the function's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from holdfast.domain.errors import DeclarationError
from holdfast.domain.task.retry import Retry
from holdfast.engine import declare
from holdfast.engine.declare import AsyncCall, AsyncTask, BareAsyncCall, SyncTask, TaskDecorator
from holdfast.registry import TaskType
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


class TaskDeclarer:
    """Declares an async function, or a plain one that runs in a thread, as a task::

    @app.task                        # its name is the function's
    @app.task(retry=Retry(max=5))    # so is this one's
    @app.task("mail.send")
    """

    def __init__(self, app: Holdfast, declare_type: Callable[..., TaskType]) -> None:
        self._app, self._declare_type = app, declare_type

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
        if unknown := sorted(options.keys() - TaskOptions.__optional_keys__):
            known = ", ".join(sorted(TaskOptions.__optional_keys__))
            raise DeclarationError(f"no such option: {', '.join(unknown)} (there are {known})")
        if callable(name):
            return self._declared(name, _NO_NAME, options)
        return lambda call: self._declared(call, name, options)

    def _declared(self, call: Callable[..., Any], name: Any, options: dict[str, Any]) -> Any:
        app = self._app
        stage = declare.define_stage(
            call,
            name=None,
            timeout_seconds=app.stage_timeout(options.get("timeout")),
            retry=declare.retry_or(Retry(), options.get("retry")),
            result_limit_bytes=app.settings.payload_limit,
        )
        declared = self._declare_type(
            stage.name if name is _NO_NAME else name,
            payload=declare.payload_type(call),
            result=stage.result,
            queue=options.get("queue", "default"),
            hold=options.get("hold", False),
            keep=options.get("keep"),
            workflow=False,
            effects=options.get("effects", "task"),
        )
        declared.add(stage)
        return (AsyncTask if stage.is_async else SyncTask)(app, declared, call)
