"""The routes of the state machines: their tables and drawings."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from holdfast.insight import diagrams
from holdfast.insight.diagrams import Format, Of
from holdfast.server.auth.tokens import Role
from holdfast.server.http.route import SVG, Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import ServiceOf

router = Routes("states")

_MEDIA = {
    Format.SVG: SVG,
    Format.MERMAID: "text/vnd.mermaid",
    Format.TEXT: "text/plain; charset=utf-8",
}
_DRAWINGS = {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in _MEDIA.values()}


class StatesQuery(sc.Sent):
    of: Of = Field(default=Of.TASKS, description="The state machine to draw")
    format: Format = Field(default=Format.SVG, description="The format of the drawing")
    live: bool = sc.flag("Add counts and dwell times; triggers have none")


@router.get(
    "/internal/states",
    response_class=Response,
    **needs(Role.VIEWER, everywhere=True, also={200: {"content": _DRAWINGS}}),
)
async def states(query: Annotated[StatesQuery, Query()], service: ServiceOf) -> Response:
    """Draw a state machine. The drawing is made from the table that all code obeys."""
    live = None
    if query.live:
        live = await diagrams.live(query.of, service.app.store, now=service.app.clock.now())
    body = diagrams.draw(query.of, query.format, live)
    return Response(body, media_type=_MEDIA[query.format])
