"""The HTTP API as one application, or as routes to put into another, and its OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import Match

from holdfast.server.auth.access import SCHEME
from holdfast.server.http import problems
from holdfast.server.http.edge import HEADERS
from holdfast.server.http.route import StrictRoute, set_apart, set_one_valued
from holdfast.server.openapi import components, examples
from holdfast.server.routes import ALL
from holdfast.server.service import Service
from holdfast.version import __version__

TITLE = "Holdfast"


def routes() -> APIRouter:
    """Return every route; their application keeps the service in ``state.holdfast``."""
    router = APIRouter()
    for part in ALL:  # side by side: each router within a router costs every request a search
        router.routes.extend(part.routes)
    strict = [route for route in router.routes if isinstance(route, StrictRoute)]
    set_apart(strict)
    set_one_valued(strict)
    return router


def create_api(service: Service, *, workers: int = 0, **options: Any) -> FastAPI:
    """Return an application of its own, which opens the engine with so many workers."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running(workers=workers, **options):
            yield

    return bare_api(service, lifespan)


def bare_api(
    service: Service, lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None
) -> FastAPI:
    api = FastAPI(
        title=TITLE,
        version=__version__,
        description="Durable tasks, plans and triggers. Errors are problem documents (RFC 9457).",
        lifespan=lifespan,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # a route of ours
        redirect_slashes=False,
        # Spans are ours (`observe/tracing.py`): FastAPI's own would be made beside them.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    api.state.holdfast = service
    api.router.routes.extend(routes().routes)
    api.add_exception_handler(HTTPException, _no_such_route)
    api.openapi = lambda: _document(api)  # type: ignore[method-assign]
    return api


async def _no_such_route(request: Request, error: Exception) -> Response:
    response = problems.problem(error, request)
    if response.status_code == 405:
        response.headers["allow"] = ", ".join(_allowed_methods(request))
    response.raw_headers.extend(HEADERS)
    return response


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes of this path; the framework knows those of the first."""
    found = (route for route in request.app.routes if isinstance(route, StrictRoute))
    fitting = (route for route in found if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in fitting for method in route.methods or ()})


def _document(api: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, which is made once."""
    if api.openapi_schema is None:
        made = get_openapi(
            title=api.title, version=api.version, description=api.description, routes=api.routes
        )
        add_parts(made)
        for name in ("HTTPValidationError", "ValidationError"):
            made["components"]["schemas"].pop(name, None)  # FastAPI's own; ours are problems
        components.rename(made)
        examples.fill(made)
        api.openapi_schema = made
    return api.openapi_schema


def add_parts(document: dict[str, Any]) -> None:
    """Add the schemas that our routes refer to."""
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    problem = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    schemes = parts.setdefault("securitySchemes", {})
    schemes[SCHEME] = {"type": "http", "scheme": "bearer", "description": "A token: hf_ID_SECRET"}
    for route in (route for part in ALL for route in part.routes):
        if isinstance(route, StrictRoute) and route.large and (secret := route.need.secret):
            schemes[secret.actor] = secret.scheme()
            update = route.large.model_json_schema()
            schemas[update["title"]] = update
