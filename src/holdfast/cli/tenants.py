"""`holdfast tenants`: how tenants stand, for a person after a restart or in the night."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from holdfast.app.phrases import count
from holdfast.app.query import TenantStatus
from holdfast.cli import options as opt
from holdfast.cli.exits import Exit
from holdfast.cli.session import Session, run
from holdfast.cli.shapes import task_shape
from holdfast.cli.show import print_fields, print_json, prose, say, status_text
from holdfast.domain import names
from holdfast.domain.task import Task
from holdfast.ports import Filter, TenantView

LINE_SHOWN = 10

tenants = typer.Typer(help="How tenants stand: what runs, what waits, what to do next.")


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, as far as one look shows."""

    status: TenantStatus
    view: TenantView
    active: Task | None
    latest: Task | None  # the newest of all its tasks
    line: tuple[str, ...]
    next: str

    def shape(self) -> dict[str, Any]:
        told = self.status.task
        return {
            "tenantId": self.view.tenant,
            "active": task_shape(self.active) if self.active else None,
            "progress": told.progress if told else None,
            "hasCheckpoint": self.status.has_checkpoint,
            "waiting": self.view.waiting,
            "line": self.line,
            "lockedBy": self.view.locked_by,
            "fence": self.view.fence,
            "latest": task_shape(self.latest) if self.latest else None,
            "next": self.next,
        }


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

    async def look(session: Session) -> list[Standing]:
        asked = [names.check("tenant", tenant) for tenant in tenants]
        statuses = await session.app.query.query_task_status_by_tenants(asked)
        views = await session.store.tenants(asked)
        return [await _stand(session, s, v) for s, v in zip(statuses, views, strict=True)]

    found = run(context, look)
    if json:
        print_json({"tenants": [one.shape() for one in found]})
    else:
        for number, one in enumerate(found):
            _print(one, first=number == 0)
    known = all(one.active or one.latest for one in found)
    return Exit.OK if known else Exit.NOT_FOUND


async def _stand(session: Session, status: TenantStatus, view: TenantView) -> Standing:
    active = (await session.store.load([view.active]))[0] if view.active else None
    latest = await session.store.find(Filter(tenant=view.tenant), limit=1)
    return Standing(
        status=status,
        view=view,
        active=active,
        latest=latest.tasks[0] if latest.tasks else None,
        line=tuple(await session.store.line(view.tenant, limit=LINE_SHOWN)),
        next=await _next(session, active, latest.tasks[0] if latest.tasks else None),
    )


async def _next(session: Session, active: Task | None, latest: Task | None) -> str:
    if active is not None:
        return await session.app.why(active.id)
    if latest is None:
        return "No task of this tenant is known."
    return f"Nothing runs or waits; its latest task, {latest.id}, is {latest.status}."


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
    prose(one.next)
