"""Options that several commands share, so that they read and mean the same."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.domain import names
from holdfast.domain.durations import seconds
from holdfast.domain.errors import InvalidInput
from holdfast.domain.task.state import Status
from holdfast.ports import Filter

Json = Annotated[bool, typer.Option("--json", help="Print JSON; this help names its keys.")]
App = Annotated[str, typer.Argument(metavar="APP", help="module:attribute, as in app:app.")]
Payload = Annotated[str, typer.Option(metavar="JSON", help="What the task is given.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Task ids.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="A task's id.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the audit.")]
Force = Annotated[bool, typer.Option("--force", help="Even over newer work of the same tenant.")]
Type = Annotated[str | None, typer.Option(metavar="NAME", help="Of this task type.")]
Tenant = Annotated[str | None, typer.Option(metavar="NAME", help="Of this tenant.")]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="Of this queue.")]
Error = Annotated[
    str | None, typer.Option(metavar="FINGERPRINT", help="With this error: see --group.")
]
OlderThan = Annotated[
    str | None, typer.Option(metavar="AGE", help="Unchanged for that long: 30s, 2h, 7d.")
]
NewerThan = Annotated[
    str | None, typer.Option(metavar="AGE", help="Changed within that time: 30s, 2h, 7d.")
]
Plan = Annotated[str | None, typer.Option(metavar="ID", help="Of this plan.")]
Statuses = Annotated[
    list[Status],
    typer.Option(
        "--status", metavar="STATUS", case_sensitive=False, help="In this status; repeatable."
    ),
]
Cursor = Annotated[str | None, typer.Option(metavar="ID", help="Go on after a former list.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="At most so many.")]


def filtered(
    now: float,
    *,
    statuses: tuple[Status, ...] = (),
    type: str | None = None,
    tenant: str | None = None,
    queue: str | None = None,
    plan: str | None = None,
    error: str | None = None,
    older_than: str | None = None,
    newer_than: str | None = None,
) -> Filter:
    """The filter these options name; a name that cannot be one is refused, not just unmatched."""
    return Filter(
        statuses=statuses,
        type=names.check_any("task type", type),
        tenant=names.check_any("tenant", tenant),
        queue=names.check_any("queue", queue),
        plan=names.check_any("plan", plan),
        error=error,
        updated_before=None if older_than is None else now - seconds(older_than),
        updated_after=None if newer_than is None else now - seconds(newer_than),
    )


class WrongUsage(InvalidInput, stored_name="WrongUsage"):
    """Options that contradict each other."""

    code = "usage"
