"""The state machines, seen."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from holdfast.app import pictures
from holdfast.app.pictures import Format, Of
from holdfast.server import schemas as sc
from holdfast.server.routing import SVG, Routes, needs
from holdfast.server.service import ServiceOf
from holdfast.server.tokens import Role

router = Routes("states")

_MEDIA = {
    Format.SVG: SVG,
    Format.MERMAID: "text/vnd.mermaid",
    Format.TEXT: "text/plain; charset=utf-8",
}
_TEXT = {"schema": {"type": "string"}}
_needs = needs(Role.VIEWER, everywhere=True)


class StatesQuery(sc.Sent):
    of: Of = Field(default=Of.TASKS, description="Which state machine")
    format: Format = Field(default=Format.SVG, description="Drawn how")
    live: bool = Field(default=False, description="With counts and dwell times; not of triggers")


@router.get(
    "/internal/states",
    response_class=Response,
    **_needs
    | {
        "responses": _needs["responses"]
        | {
            200: {
                "content": dict.fromkeys(
                    (kind.partition(";")[0] for kind in _MEDIA.values()), _TEXT
                )
            }
        }
    },
)
async def states(query: Annotated[StatesQuery, Query()], service: ServiceOf) -> Response:
    """Drawn from the table that all code obeys; `live`: with counts and dwell times."""
    live = None
    if query.live:
        live = await pictures.live(query.of, service.app.store, now=service.app.clock.now())
    body = pictures.drawn(query.of, query.format, live)
    return Response(body, media_type=_MEDIA[query.format])
