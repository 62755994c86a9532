"""Holdfast in a FastAPI application of your own: workers in its lifespan, and the API as a router.

from holdfast.integrations import fastapi as hf

api = FastAPI(lifespan=hf.lifespan(app, workers=1))
api.include_router(hf.router(app), prefix="/holdfast")   # the HTTP API, for those with a token

@api.post("/orders")
async def order(engine: hf.Engine) -> str: ...

Needs the extra: pip install 'holdfast-engine[server]'.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, TypeAlias, Unpack

from fastapi import APIRouter, Depends, FastAPI, Request

from holdfast.domain.errors import HoldfastError
from holdfast.engine import Holdfast
from holdfast.engine.options import show_options
from holdfast.engine.workers import WorkerTerms
from holdfast.server.api import add_parts
from holdfast.server.auth.tokens import Token
from holdfast.server.http.route import Routes
from holdfast.server.routes import ALL, health
from holdfast.server.service import Service

__all__ = ["Engine", "engine", "lifespan", "router"]

State: TypeAlias = Mapping[str, Any] | None
Lifespan: TypeAlias = Callable[[FastAPI], AbstractAsyncContextManager[Any]]

DOCUMENT = "/openapi.json"  # in your application it would be yours, for everybody to read


@show_options(WorkerTerms)
def lifespan(
    app: Holdfast,
    *,
    workers: int = 1,
    tokens: Sequence[Token] = (),
    then: Lifespan | None = None,
    **options: Unpack[WorkerTerms],
) -> Lifespan:
    """Open the engine, with so many workers in this process, and drain them at the end.

    ``then``: your own lifespan, which finds the engine open. ``tokens``: in addition to those of
    the file that HOLDFAST_TOKENS names. The other options are those of the workers.
    """

    @asynccontextmanager
    async def open_engine(api: FastAPI) -> AsyncIterator[State]:
        async with _serving(api, Service(app, tokens=tokens), workers=workers, **options):
            if then is None:
                yield None
            else:
                async with then(api) as state:
                    yield state

    return open_engine


def router(of: Holdfast | Service) -> APIRouter:
    """Return the HTTP API, to include under any prefix.

    Alone it opens the engine without workers; with `lifespan` it uses the engine that is open.
    """

    @asynccontextmanager
    async def open_engine(api: FastAPI) -> AsyncIterator[None]:
        if _find_service(api) is not None:
            yield
        else:
            service = of if isinstance(of, Service) else Service(of)
            async with _serving(api, service, workers=0):
                yield

    made = APIRouter(lifespan=open_engine)
    for part in ALL:
        made.include_router(part if part is not health.router else _without_document(part))
    return made


async def engine(request: Request) -> Holdfast:
    service = _find_service(request.app)
    if service is None:
        raise HoldfastError("no engine is open here: FastAPI(lifespan=lifespan(app))")
    return service.app


Engine = Annotated[Holdfast, Depends(engine)]


@asynccontextmanager
async def _serving(
    api: FastAPI, service: Service, *, workers: int, **options: Any
) -> AsyncIterator[None]:
    given = api.openapi
    api.state.holdfast, api.openapi = service, _complete_document(given)  # type: ignore[method-assign]
    try:
        async with service.running(workers=workers, **options):
            yield
    finally:
        api.state.holdfast, api.openapi = None, given  # type: ignore[method-assign]


def _find_service(api: FastAPI) -> Service | None:
    found: Service | None = getattr(api.state, "holdfast", None)
    return found


def _without_document(part: Routes) -> Routes:
    kept = Routes("service")
    kept.routes.extend(route for route in part.routes if getattr(route, "path", "") != DOCUMENT)
    return kept


def _complete_document(given: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return your OpenAPI document, with the parts to which our routes in it refer."""

    def document() -> dict[str, Any]:
        made = given()
        if "Problem" not in made.get("components", {}).get("schemas", {}):
            add_parts(made)
        return made

    return document
