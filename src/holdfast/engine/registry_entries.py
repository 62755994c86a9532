"""The entries of the registry, made and checked from a user's functions and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypedDict, get_type_hints

from holdfast.domain import names
from holdfast.domain.durations import seconds
from holdfast.domain.errors import DeclarationError
from holdfast.domain.task.checkpoint import DEFAULT, RESTART, SUSPEND, Policy
from holdfast.domain.task.retry import Retry
from holdfast.encoding.codec import Codec
from holdfast.engine import stage_functions
from holdfast.engine.options import Option
from holdfast.engine.stage_functions import name_of
from holdfast.registry import StageDef, TaskType
from holdfast.settings import Settings

_HOLD = "keep the tenant's line closed while a task is not settled, also while it waits"


class DeclareOptions(TypedDict, total=False):
    """The options that a task and a workflow share."""

    queue: Annotated[str, Option("default", "the queue of its tasks")]
    keep: Annotated[
        float | str | None,
        Option(None, "how long a record stays after its task has settled; None: the setting"),
    ]
    effects: Annotated[
        str,
        Option(
            "task", 'what ctx.key is built from, "task" or "key"; with "key" each submit needs one'
        ),
    ]


class TaskOptions(DeclareOptions, total=False):
    retry: Annotated[Retry | None, Option(None, "the repeats of a failed attempt; None: Retry()")]
    timeout: Annotated[
        float | str | None, Option(None, "the longest time of one attempt; None: the setting")
    ]
    hold: Annotated[bool, Option(False, _HOLD)]


class WorkflowOptions(DeclareOptions, total=False):
    retry: Annotated[
        Retry | None, Option(None, "for stages that have none of their own; None: Retry()")
    ]
    hold: Annotated[bool, Option(True, _HOLD)]
    on_invalid: Annotated[
        str, Option(SUSPEND, 'what happens at an invalid checkpoint: "suspend" or "restart"')
    ]
    checkpoint_max_age: Annotated[
        float | str | None, Option(None, "a checkpoint older than this is invalid; None: no limit")
    ]


def define_type(
    settings: Settings,
    name: str,
    terms: TaskOptions | WorkflowOptions,
    *,
    payload: Any,
    result: Codec[Any],
    workflow: bool,
    checkpoints: Policy = DEFAULT,
) -> TaskType:
    keep, effects = terms["keep"], terms["effects"]
    if effects not in ("task", "key"):
        raise DeclarationError(f'effects={effects!r}: write "task" or "key"')
    return TaskType(
        name=name,
        payload=Codec(payload, limit_bytes=settings.payload_limit),
        result=result,
        queue=names.check("queue", terms["queue"]),
        hold=terms["hold"],
        workflow=workflow,
        keep_seconds=settings.keep if keep is None else seconds(keep),
        checkpoints=checkpoints,
        effects_namespace=settings.namespace if effects == "key" else None,
    )


def stage_timeout(settings: Settings, given: float | str | None) -> float:
    timeout = settings.stage_timeout if given is None else seconds(given)
    if timeout <= 0:
        raise DeclarationError(f"timeout={given!r} must be above zero")
    return timeout


def retry_or(default: Retry, given: Retry | None) -> Retry:
    if given is None:
        return default
    if not isinstance(given, Retry):
        raise DeclarationError(f"retry={given!r} must be a Retry(max=…)")
    return given


def checkpoint_policy(on_invalid: str, max_age: float | str | None) -> Policy:
    if on_invalid not in (SUSPEND, RESTART):
        raise DeclarationError(f"on_invalid={on_invalid!r} must be {SUSPEND} or {RESTART}")
    age = None if max_age is None else seconds(max_age)
    if age is not None and age <= 0:
        raise DeclarationError(f"checkpoint_max_age={max_age!r} must be above zero")
    return Policy(on_invalid=on_invalid, max_age_seconds=age)


def define_stage(
    call: Callable[..., Any],
    *,
    name: str | None,
    timeout_seconds: float,
    retry: Retry,
    result_limit_bytes: int,
) -> StageDef:
    has_payload = takes_payload(call)
    hints = hints_of(call)
    stage_functions.check_context(call, hints)
    returned = hints.get("return", Any)
    name = name or name_of(call)
    result: Codec[Any] = Codec(
        type(None) if returned is None else returned,
        limit_bytes=result_limit_bytes,
        what=f"result of {name}",
    )
    return StageDef(
        name=name,
        call=call,
        is_async=inspect.iscoroutinefunction(call),
        takes_payload=has_payload,
        retry=retry,
        timeout_seconds=timeout_seconds,
        result=result,
    )


def payload_type(call: Callable[..., Any]) -> Any:
    """Return the payload type of a one-stage task: the annotation of its second parameter."""
    if not takes_payload(call):
        return type(None)
    parameter = list(inspect.signature(call).parameters.values())[1]
    return hints_of(call).get(parameter.name, Any)


def takes_payload(call: Callable[..., Any]) -> bool:
    if not inspect.isfunction(call) and not inspect.ismethod(call):
        raise DeclarationError(f"{call!r} is not a function; wrap it in one")
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise DeclarationError(f"{name_of(call)} is a generator; a stage returns once")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    taken = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    demanded = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not 1 <= len(taken) <= 2 or demanded:
        raise DeclarationError(
            f"{name_of(call)} must take a Context and at most one payload; "
            "for several values use a dataclass or a model"
        )
    return len(taken) == 2


def hints_of(call: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(call, include_extras=True)
    except NameError as error:
        raise DeclarationError(
            f"{name_of(call)}: its annotations cannot be read ({error}); "
            "declare the types at the module's top level"
        ) from error
