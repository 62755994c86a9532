"""The routes of the audit chain and of transitions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field, StringConstraints

from holdfast.domain.task.state import Status
from holdfast.engine.operations import audit
from holdfast.insight.views import audit as views
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.routes.tasks import TaskMarks, moment
from holdfast.server.service import ServiceOf

router = Routes("audit")

FRESH_SECONDS = 2.0


class AuditQuery(sc.PageQuery):
    task: str | sc.Absent = Field(
        default=None,
        max_length=200,
        description="The task, plan, trigger, queue or worker of the entries",
    )
    cursor: sc.Offset | sc.Absent = sc.optional(sc.FROM_BEFORE)


@router.get("/internal/audit", **needs(Role.VIEWER, everywhere=True))
async def list_audit(query: Annotated[AuditQuery, Query()], service: ServiceOf) -> views.AuditPage:
    """List the entries of the audit chain, the newest first. Refused commands are among them."""
    entries, more = await audit.entries_from(
        service.app.store, int(query.cursor or 0), query.limit, query.task
    )
    hide = service.app.redactor
    return {
        "entries": [views.audit_view(entry, hide) for entry in entries],
        "cursor": None if more is None else str(more),
    }


StepCursor = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}@[0-9]{1,17}$")]


class TransitionQuery(TaskMarks, sc.PageQuery):
    task: sc.IdCursor | sc.Absent = sc.optional("Only this task")
    status: list[Status] = sc.any_of(11)
    since: sc.TimeText | sc.Absent = sc.optional("The time of the first transition")
    until: sc.TimeText | sc.Absent = sc.optional("The time before which the transitions were made")
    cursor: StepCursor | sc.Absent = sc.optional(sc.FROM_BEFORE)


@router.get("/internal/audit/transitions", **needs(Role.VIEWER, 404, everywhere=True))
async def list_transitions(
    query: Annotated[TransitionQuery, Query()], service: ServiceOf
) -> views.TransitionList:
    """List the transitions of tasks, with who made them. The newest task comes first, and of each
    task the oldest transition."""
    page = await service.app.query.transitions(
        query.where(query.status),
        task=query.task,
        since=moment(query.since, "since"),
        until=moment(query.until, "until"),
        limit=query.limit,
        cursor=query.cursor,
    )
    hide = service.app.redactor
    return {
        "transitions": [views.transition_view(step, hide) for step in page.transitions],
        "cursor": page.cursor,
    }


Noted = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,15}:[0-9a-f]{64}$")]


class ChainQuery(sc.Sent):
    head: Noted | sc.Absent = sc.optional("A chain tip that was noted before")


@router.get("/internal/audit/verify", **needs(Role.VIEWER, everywhere=True))
async def verify_audit(
    query: Annotated[ChainQuery, Query()], service: ServiceOf
) -> views.ChainView:
    """Verify the audit chain from its base to its tip. Requests that arrive in the meantime share
    the answer."""
    store = service.app.store
    verdict = await service.shared_reads.get(
        "audit",
        lambda: audit.verify(
            store,
            seals=False,
            keep_seconds=service.settings.audit_keep,
            now=service.app.clock.now(),
        ),
        fresh_seconds=FRESH_SECONDS,
    )
    if query.head:
        verdict = await audit.compare_with_note(store, verdict, audit.anchor_from(query.head))
    return views.chain_view(verdict)
