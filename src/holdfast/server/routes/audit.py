"""Who did what, and whether that was changed since."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query
from pydantic import Field, StringConstraints

from holdfast.domain.task.history import Maker
from holdfast.domain.task.state import Status
from holdfast.engine.operations import audit
from holdfast.insight.views import tasks
from holdfast.ports import Filter
from holdfast.server.auth.tokens import Role
from holdfast.server.auth.visibility import moment
from holdfast.server.http.routing import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import ServiceOf

router = Routes("audit")

FRESH_SECONDS = 2.0


class AuditView(sc.Answer):
    at: sc.Time
    actor: str = Field(examples=["api:ann"])
    origin: str = Field(examples=["10.0.0.7"])
    reason: str
    command: str = Field(examples=["cancel"])
    task_id: str = Field(description="Of a task, or plan:ID, trigger:ID, queue:NAME, worker:NAME")
    before: str
    after: str
    refused: str | None = Field(description="The code of the refusal; null: it was done")


class AuditPage(sc.Answer):
    entries: list[AuditView]
    cursor: str | None


class AuditQuery(sc.Sent):
    task: str | sc.Absent = Field(default=None, max_length=200, description="About this")
    limit: int = Field(default=sc.PAGE, ge=1, le=sc.PAGE_MAX, description=sc.AT_MOST)
    cursor: sc.Offset | sc.Absent = Field(default=None, description=sc.FROM_BEFORE)


@router.get("/internal/audit", response_model=AuditPage, **needs(Role.VIEWER, everywhere=True))
async def list_audit(query: Annotated[AuditQuery, Query()], service: ServiceOf) -> dict[str, Any]:
    """The newest first, done or refused."""
    entries, more = await audit.entries_from(
        service.app.store, int(query.cursor or 0), query.limit, query.task
    )
    hide = service.app.redactor
    return {
        "entries": [tasks.audit_shape(entry, hide) for entry in entries],
        "cursor": None if more is None else str(more),
    }


class TransitionView(sc.Answer):
    at: sc.Time
    task_id: str
    version: int = Field(examples=[2], description="Of the record, after the transition")
    command: str = Field(examples=["start"])
    before: Status | None = Field(examples=[Status.PENDING], description="null: there was no task")
    after: Status = Field(examples=[Status.RUNNING])
    maker: Maker = Field(examples=[Maker.WORKER])
    name: str = Field(examples=["host-1-4711"], description="Worker, actor, plan or trigger")
    origin: str
    reason: str = Field(examples=[""])


class TransitionList(sc.Answer):
    transitions: list[TransitionView]
    cursor: str | None


StepCursor = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}@[0-9]{1,17}$")]


class TransitionQuery(sc.Sent):
    task: sc.IdCursor | sc.Absent = Field(default=None, description="Of this task alone")
    status: list[Status] = Field(
        default=[], max_length=11, description="Of tasks in one of these; none given: any"
    )
    type: sc.TypeName | sc.Absent = Field(default=None, description="Of this task type")
    tenant: sc.Tenant | sc.Absent = Field(default=None, description="Of this tenant")
    plan: sc.PlanId | sc.Absent = Field(default=None, description="Of this plan")
    queue: sc.QueueName | sc.Absent = Field(default=None, description="Of this queue")
    since: sc.TimeText | sc.Absent = Field(default=None, description="Made then or later")
    until: sc.TimeText | sc.Absent = Field(default=None, description="Made before then")
    limit: int = Field(default=sc.PAGE, ge=1, le=sc.PAGE_MAX, description=sc.AT_MOST)
    cursor: StepCursor | sc.Absent = Field(default=None, description=sc.FROM_BEFORE)


@router.get(
    "/internal/audit/transitions",
    response_model=TransitionList,
    **needs(Role.VIEWER, 404, everywhere=True),
)
async def list_transitions(
    query: Annotated[TransitionQuery, Query()], service: ServiceOf
) -> dict[str, Any]:
    """Every transition with who made it. The newest tasks first, of each the oldest first."""
    where = Filter(
        statuses=tuple(dict.fromkeys(query.status)),
        type=query.type,
        tenant=query.tenant,
        plan=query.plan,
        queue=query.queue,
    )
    page = await service.app.query.transitions(
        where,
        task=query.task,
        since=moment(query.since, "since"),
        until=moment(query.until, "until"),
        limit=query.limit,
        cursor=query.cursor,
    )
    hide = service.app.redactor
    return {
        "transitions": [tasks.step_shape(step, hide) for step in page.transitions],
        "cursor": page.cursor,
    }


class MissingView(sc.Answer):
    """Links that are gone at the old end."""

    count: int = Field(description="Numbers 1 to this")
    explained: bool = Field(description="False: neither the retention nor a prune took them")
    says: str


class ChainView(sc.Answer):
    holds: bool
    links: int
    base: str = Field(examples=["0:0000"], description="NUMBER:HASH on which the oldest hangs")
    head: str = Field(description="NUMBER:HASH; note it elsewhere, and compare with it later")
    loose: int = Field(description="Written down, and not in the chain yet")
    broken_at: int | None
    says: str | None
    missing: MissingView | None


Noted = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,15}:[0-9a-f]{64}$")]


class ChainQuery(sc.Sent):
    head: Noted | sc.Absent = Field(default=None, description="Noted before")


@router.get(
    "/internal/audit/verify", response_model=ChainView, **needs(Role.VIEWER, everywhere=True)
)
async def verify_audit(query: Annotated[ChainQuery, Query()], service: ServiceOf) -> dict[str, Any]:
    """Walk the chain of hashes, from its base to its head: once for all who ask meanwhile."""
    store = service.app.store
    verdict = await service.looks.at(
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
        verdict = await audit.compared(store, verdict, audit.anchor_from(query.head))
    return {
        "holds": verdict.holds,
        "links": verdict.links,
        "base": audit.written(verdict.base),
        "head": audit.written(verdict.head),
        "loose": verdict.loose,
        "brokenAt": verdict.broken.seq if verdict.broken else None,
        "says": verdict.broken.says if verdict.broken else None,
        "missing": msgspec.to_builtins(verdict.missing),
    }
