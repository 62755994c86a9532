"""The options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
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

Check = Callable[[str], object]


def takes(what: str, help: str, *names: str, check: Check | None = None, **limits: Any) -> Any:
    """Return an option with a value, which the help calls ``what``. Before the command opens the
    store, ``check`` refuses a wrong value; a text that it returns takes the value's place.
    """

    def check_given(value: str | None) -> str | None:
        checked = value if value is None or check is None else check(value)
        return checked if isinstance(checked, str) else value

    given = check_given if check else None
    return typer.Option(*names, metavar=what, help=help, callback=given, **limits)


def duration(what: str, help: str) -> Any:
    return takes(what, help, check=seconds)


def _takes_name(kind: str) -> Any:
    return takes("NAME", f"Only this {kind}.", check=partial(names.check, kind))


def flag(names: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(names, help=help)


def argument(what: str, help: str) -> Any:
    """Return an argument that the help calls ``what``."""
    return typer.Argument(metavar=what, help=help)


Json = Annotated[bool, flag("--json", "Print JSON; the keys are listed below.")]
App = Annotated[str, argument("APP", "Your app as module:attribute, for example app:app.")]
Payload = Annotated[str, takes("JSON", "The payload of the task.")]
Ids = Annotated[list[str], argument("ID", "Ids of tasks.")]
Id = Annotated[str, argument("ID", "The id of a task.")]
Reason = Annotated[str, takes("TEXT", "The reason, for the audit.")]
Force = Annotated[bool, flag("--force", "Act even if newer work of the tenant has run.")]
Type = Annotated[str | None, _takes_name("task type")]
Tenant = Annotated[str | None, _takes_name("tenant")]
Queue = Annotated[str | None, _takes_name("queue")]
Error = Annotated[
    str | None, takes("FINGERPRINT", "Only this error; see `suspended list --group`.")
]
OlderThan = Annotated[str | None, duration("AGE", "Only tasks unchanged for so long: 30s, 2h, 7d.")]
NewerThan = Annotated[str | None, duration("AGE", "Only tasks changed within: 30s, 2h, 7d.")]
Plan = Annotated[str | None, takes("ID", "Only this plan.", check=partial(names.check, "plan"))]
STATUS = typer.Option(
    "--status", metavar="STATUS", case_sensitive=False, help="Only this status; repeatable."
)
Statuses = Annotated[list[Status], STATUS]
Cursor = Annotated[str | None, takes("ID", "Continue after the page that gave this cursor.")]
Limit = Annotated[int, takes("N", "Show at most N.", min=1, max=1000)]


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
    """Return the filter that the options describe."""
    return Filter(
        statuses=tuple(statuses),
        type=type,
        tenant=tenant,
        queue=queue,
        plan=plan,
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
        raise InvalidInput(f"{what} is not JSON: {error}") from None


def parse_json_object(what: str, text: str | bytes, example: str) -> dict[str, Any]:
    value = parse_json(what, text)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object, such as {example}")
    return value


class WrongUsage(InvalidInput, stored_name="WrongUsage"):
    """Options that contradict each other."""

    code = "usage"
