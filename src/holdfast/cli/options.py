"""The options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.command_signature import replace_parameter
from holdfast.domain import names
from holdfast.domain.durations import seconds
from holdfast.domain.errors import InvalidInput
from holdfast.domain.plan.plan import FailureCount, FailureRate, HaltRule
from holdfast.domain.task.state import Status
from holdfast.ports import Filter

Json = Annotated[bool, typer.Option("--json", help="Print JSON; the keys are listed below.")]
App = Annotated[
    str, typer.Argument(metavar="APP", help="Your app as module:attribute, for example app:app.")
]
Payload = Annotated[str, typer.Option(metavar="JSON", help="The payload of the task.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of tasks.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a task.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the audit.")]
Force = Annotated[
    bool, typer.Option("--force", help="Act even if newer work of the tenant has run.")
]
Type = Annotated[str | None, typer.Option(metavar="NAME", help="Only this task type.")]
Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Only this tenant.")]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="Only this queue.")]
Error = Annotated[
    str | None,
    typer.Option(metavar="FINGERPRINT", help="Only this error; see `suspended list --group`."),
]
OlderThan = Annotated[
    str | None, typer.Option(metavar="AGE", help="Only tasks unchanged for so long: 30s, 2h, 7d.")
]
NewerThan = Annotated[
    str | None, typer.Option(metavar="AGE", help="Only tasks changed within: 30s, 2h, 7d.")
]
Plan = Annotated[str | None, typer.Option(metavar="ID", help="Only this plan.")]
STATUS = typer.Option(
    "--status", metavar="STATUS", case_sensitive=False, help="Only this status; repeatable."
)
Statuses = Annotated[list[Status], STATUS]
Cursor = Annotated[
    str | None, typer.Option(metavar="ID", help="Continue after the page that gave this cursor.")
]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Show at most N.")]


FILTERS = {
    "type": Type,
    "tenant": Tenant,
    "queue": Queue,
    "plan": Plan,
    "error": Error,
    "older_than": OlderThan,
    "newer_than": NewerThan,
}
Filters = dict[str, str | None]


def with_filters(*chosen: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command an option for each filter named here, in place of its parameter ``filters``,
    which receives the values of these options.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def call(*args: Any, **given: Any) -> Any:
            return command(*args, filters={name: given.pop(name) for name in chosen}, **given)

        options = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=FILTERS[name])
            for name in chosen
        ]
        replace_parameter(call, command, "filters", options)
        return call

    return decorate


def task_filter(
    now: float,
    *,
    statuses: Iterable[Status] = (),
    type: str | None = None,
    tenant: str | None = None,
    queue: str | None = None,
    plan: str | None = None,
    error: str | None = None,
    older_than: str | None = None,
    newer_than: str | None = None,
) -> Filter:
    """Return the filter that the options describe; an invalid name is refused instead of matching
    nothing.
    """
    return Filter(
        statuses=tuple(statuses),
        type=names.check_any("task type", type),
        tenant=names.check_any("tenant", tenant),
        queue=names.check_any("queue", queue),
        plan=names.check_any("plan", plan),
        error=error,
        updated_before=None if older_than is None else now - seconds(older_than),
        updated_after=None if newer_than is None else now - seconds(newer_than),
    )


def halt_rule(option: str, text: str) -> HaltRule:
    """Parse a share or a number of failures, as ``option`` takes it."""
    try:
        if text.endswith("%"):
            return FailureRate(float(text.removesuffix("%")) / 100)
        return FailureCount(int(text))
    except ValueError:
        raise InvalidInput(
            f"{option} {text!r}: write a share such as 5%, or a number such as 3"
        ) from None


def parse_json(what: str, text: str | bytes) -> Any:
    """Return the JSON value in a text; InvalidInput names ``what`` if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{what}: not JSON: {error}") from None


def parse_json_object(what: str, text: str | bytes, example: str) -> dict[str, Any]:
    value = parse_json(what, text)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what}: it must be an object, such as {example}")
    return value


class WrongUsage(InvalidInput, stored_name="WrongUsage"):
    """Options that contradict each other."""

    code = "usage"
