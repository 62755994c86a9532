"""`holdfast tenants`: how tenants stand, for a person after a restart or in the night."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.app.phrases import count
from holdfast.app.standing import Standing, standings
from holdfast.cli import hiding
from holdfast.cli import options as opt
from holdfast.cli.exits import Exit
from holdfast.cli.session import Session, run
from holdfast.cli.show import print_fields, print_json, prose, say, status_text
from holdfast.domain.redaction import Redactor

tenants = typer.Typer(help="How tenants stand: what runs, what waits, what to do next.")


@tenants.callback()
def of_tenants() -> None:
    """How tenants stand: what runs, what waits, what to do next."""


@tenants.command(
    epilog="JSON: tenants (each: tenantId, active, progress, hasCheckpoint, waiting, line, "
    "lockedBy, fence, latest, next). Exit code 3: a tenant of whom nothing is known."
)
def show(
    context: typer.Context,
    tenants: Annotated[list[str], typer.Argument(metavar="TENANT")],
    json: opt.Json = False,
) -> int:
    """Active task, checkpoint, line, lock, and what to do next."""

    async def look(session: Session) -> tuple[list[Standing], Redactor]:
        return await standings(session.app, tenants), session.app.redactor

    found, hide = run(context, look)
    if json:
        print_json({"tenants": [one.shape(hide) for one in found]})
    else:
        for number, one in enumerate(found):
            _print(one, first=number == 0)
    known = all(one.active or one.latest for one in found)
    return Exit.OK if known else Exit.NOT_FOUND


def _print(one: Standing, *, first: bool) -> None:
    if not first:
        say()
    status, view, active = one.status, one.view, one.active
    checkpoint = "yes" if status.has_checkpoint else "none"
    print_fields(
        {
            "tenant": view.tenant,
            "active": active.id if active else "none",
            "status": status_text(active.status) if active else None,
            "type": active.type if active else None,
            "stage": active.at_stage if active else None,
            "progress": f"{status.task.progress:.0%}" if status.task else None,
            "checkpoint": checkpoint if active else None,
            "lock": f"{view.locked_by or 'free'}, last fence {view.fence}",
            "waiting": count(view.waiting, "task"),
        }
    )
    for task_id in one.line:
        say(f"            {task_id}")
    if view.waiting > len(one.line):
        say(f"            … and {view.waiting - len(one.line)} more")
    prose(hiding.text(one.next))
