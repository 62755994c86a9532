"""The routes of bulk actions: one command for all tasks that a filter matches."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import Body, Path, Query
from pydantic import Field

from holdfast.domain.bulk import HIGHEST_RATE, LOWEST_RATE, STEPS_LIMIT, BulkCommand, Canary
from holdfast.domain.errors import BulkNotFound
from holdfast.engine.bulk.order import BulkInfo
from holdfast.insight.views import bulk as views
from holdfast.server.auth.access import Caller, CallerOf, foreign
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.routes.plans import halt_rule
from holdfast.server.routes.tasks import TaskQuery, seen_by
from holdfast.server.service import Service, ServiceOf

router = Routes("bulk")

BulkId = Annotated[str, sc.id_in_path("The id of a bulk action")]


class CanaryWanted(sc.Sent):
    """A few tasks go first; the rest follows if they do not fail again."""

    steps: list[Annotated[int, Field(ge=1, le=1_000_000), sc.NUMBER]] = Field(
        default=[1, 10], min_length=1, max_length=STEPS_LIMIT
    )
    stop_at: str = Field(
        default="20%",
        pattern=r"^([0-9]{1,9}|(100|[0-9]{1,2})(\.[0-9]{1,6})?%)$",
        description="The action halts when more than this share or number has failed again",
    )
    wait_seconds: Annotated[float, Field(ge=1, le=86_400), sc.NUMBER] = 600


class NewBulk(sc.Reasoned):
    model_config = sc.body_example(
        command="resume",
        filter={"error": "4f0c9a7d12ab"},
        canary={"steps": [1, 10]},
        reason="the database is back",
    )

    command: BulkCommand
    filter: TaskQuery = Field(examples=[{"error": "4f0c9a7d12ab"}])
    everything: sc.Flag = sc.flag("True if an empty filter is meant to match every task")
    rate: Annotated[float, Field(ge=LOWEST_RATE, le=HIGHEST_RATE), sc.NUMBER] = Field(
        default=50, description="The number of tasks per second"
    )
    canary: CanaryWanted | None = None
    limit: Annotated[int, Field(ge=1, le=10_000_000), sc.NUMBER] | None = None
    force: sc.Flag = False
    from_checkpoint: sc.Flag = True
    key: sc.Key | None = sc.optional("A second order with the same key returns the first action")
    dry_run: sc.Flag = sc.flag("Show on which tasks the action would act, and write nothing")

    def as_canary(self) -> Canary | None:
        if self.canary is None:
            return None
        return Canary(
            steps=tuple(self.canary.steps),
            stop_at=halt_rule(self.canary.stop_at),
            wait_seconds=self.canary.wait_seconds,
        )


_PREVIEW = {"model": views.BulkPreviewView, "description": "A dry run: nothing was written"}


@router.post(
    "/internal/bulk",
    status_code=201,
    response_model=views.BulkView,
    **needs(Role.OPERATOR, 409, also={200: _PREVIEW}),
)
async def create_bulk(new: NewBulk, service: ServiceOf, caller: CallerOf) -> Any:
    """Create a bulk action. Workers carry it out in the background, and continue after a crash. It
    leaves out a task that has changed since the action was created, so it acts on no task twice.
    Only cancel and pause apply to every task that was submitted before, whatever its state is by
    then."""
    bulks, where = service.acting_as(caller).bulks, seen_by(caller, new.filter.filter())
    how = {"force": new.force, "from_checkpoint": new.from_checkpoint}
    if new.dry_run:
        preview = await bulks.preview(new.command, where, everything=new.everything, **how)
        return sc.answer(200, views.bulk_preview_view(preview))
    handle = await bulks.start(
        new.command,
        where,
        everything=new.everything,
        rate=new.rate,
        canary=new.as_canary(),
        limit=new.limit,
        key=new.key,
        reason=new.reason,
        **how,
    )
    return views.bulk_view(_as_seen_by(await handle.info(), caller), service.app.redactor)


@router.get("/internal/bulk", **needs(Role.VIEWER, everywhere=True))
async def list_bulks(
    query: Annotated[sc.PageQuery, Query()], service: ServiceOf
) -> views.BulkPageView:
    """List bulk actions, the newest first."""
    page = await service.app.bulk.find(limit=query.limit, cursor=query.cursor)
    hide = service.app.redactor
    return {"bulks": [views.bulk_view(one, hide) for one in page.bulks], "cursor": page.cursor}


def _as_seen_by(info: BulkInfo, caller: Caller) -> BulkInfo:
    return msgspec.structs.replace(info, by=caller.sight.seen_actor(info.by))


async def visible_bulk(service: Service, caller: Caller, bulk_id: str) -> BulkInfo:
    """Return a bulk action; a token of some tenants sees those that were made for one of them."""
    if not bulk_id.isascii() or not bulk_id.isprintable():
        raise BulkNotFound(bulk_id)
    info = await (await service.app.bulk.get(bulk_id)).info()
    if not caller.sees(info.where.tenant):
        raise foreign(BulkNotFound(bulk_id))
    return _as_seen_by(info, caller)


@router.get("/internal/bulk/{bulk_id}", **needs(Role.VIEWER, 404))
async def show_bulk(bulk_id: BulkId, service: ServiceOf, caller: CallerOf) -> views.BulkView:
    """Show a bulk action, as it was after its last round."""
    return views.bulk_view(await visible_bulk(service, caller, bulk_id), service.app.redactor)


class BulkAction(StrEnum):
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"


class BulkActionRequest(sc.Reasoned):
    model_config = sc.body_example(reason="enough")


@router.post("/internal/bulk/{bulk_id}/{command}", **needs(Role.OPERATOR, 404, 409))
async def ask_bulk(
    bulk_id: BulkId,
    command: Annotated[BulkAction, Path(description="The command for the action")],
    service: ServiceOf,
    caller: CallerOf,
    body: Annotated[BulkActionRequest | None, Body()] = None,
) -> views.BulkView:
    """Stop, pause or resume a bulk action. `stop` is final, and undoes nothing."""
    await visible_bulk(service, caller, bulk_id)
    reason = body.reason if body else ""
    info = await service.acting_as(caller).bulks.ask(bulk_id, command, reason)
    return views.bulk_view(_as_seen_by(info, caller), service.app.redactor)
