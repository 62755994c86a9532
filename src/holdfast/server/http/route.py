"""The way of every request: admit, read within bounds, call, and answer, whatever was raised."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Scope

from holdfast.domain.errors import DeclarationError, HoldfastError
from holdfast.server.auth.access import ONE_VALUED, ChatSecret, Need, describe_need
from holdfast.server.auth.tokens import Role
from holdfast.server.http import problems
from holdfast.server.http.bodies import SMALL_BYTES, StrictRequest
from holdfast.server.http.edge import HEADERS
from holdfast.server.service import service_of

SVG = "image/svg+xml"
STYLED = [  # a drawing has its styles in it
    (name, value.replace(b"; frame-", b"; style-src 'unsafe-inline'; frame-"))
    for name, value in HEADERS
]
_NEED = "x-need"  # taken out again before the document is made
_TAKES = "x-takes"  # so are these
_LARGE = "x-large"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Answers = dict[int | str, dict[str, Any]]


class Deferred(Response):
    """A response that a further call makes when the request's body has been let go of: a caller
    who waits for long does not keep it in memory."""

    def __init__(self, finish: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__()
        self.finish = finish


class StrictRoute(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        extra = dict(options.get("openapi_extra") or {})
        need = extra.pop(_NEED, None)
        if not isinstance(need, Need):
            raise DeclarationError(f"route {path} does not say what it needs of its caller")
        self.need = need
        self.takes: type[BaseModel] | None = extra.pop(_TAKES, None)
        self.large: type[BaseModel] | None = extra.pop(_LARGE, None)
        summary = " ".join((endpoint.__doc__ or "").split()).partition(". ")[0].removesuffix(".")
        described = {"openapi_extra": extra | describe_need(need), "summary": summary}
        super().__init__(path, endpoint, **options | described)
        self.sparing: tuple[dict[str, str], ...] = ()
        self.one_valued = ONE_VALUED
        self.ends: frozenset[bytes] = frozenset()  # last words by which longer routes go on

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a path, unless another route names it word for word: it is that route's."""
        match, found = super().matches(scope)
        if match is not Match.NONE and self.ends:
            sent: bytes = scope.get("raw_path") or scope["path"].encode()
            if sent.rpartition(b"/")[2] in self.ends:  # as %2F it would be a part of the name
                return Match.NONE, {}
        if match is not Match.NONE and self.sparing:
            given = found["path_params"]
            if any(words.items() <= given.items() for words in self.sparing):
                return Match.NONE, {}
        return match, found

    def get_route_handler(self) -> Handler:
        inner, need, path = super().get_route_handler(), self.need, self.path_format
        large = self.large
        if self.takes is not None:
            inner = _straight(self.endpoint, self.takes, inner)

        async def handle(request: Request) -> Response:
            service, started = service_of(request), time.perf_counter()
            try:
                caller = request.state.caller = await service.admission.admit(
                    request, need, self.one_valued
                )
                strict = StrictRequest(request.scope, request.receive)
                strict.arrivals = service.arrivals
                strict.sender = caller.token_id or caller.origin
                strict.large, limit = large, service.settings.body_limit
                strict.limit_bytes = limit if large is not None else min(limit, SMALL_BYTES)
                strict.places = ExitStack()
                with strict.places:
                    response = await inner(strict)
                if isinstance(response, Deferred):
                    del strict
                    response = await response.finish(request)
            except Exception as error:
                response = await _problem(request, error)
            response.raw_headers.extend(STYLED if response.media_type == SVG else HEADERS)
            service.metrics.http(
                request.method, path, response.status_code, time.perf_counter() - started
            )
            return response

        return handle


def _straight(
    endpoint: Callable[..., Coroutine[Any, Any, Response]], model: type[BaseModel], general: Handler
) -> Handler:
    """Handle a request past FastAPI, whose search for parameters costs more than the work itself. A
    request that is not as it should be goes the general way, and is refused there."""
    read = model.__pydantic_validator__.validate_python

    async def handle(request: Request) -> Response:
        if request.headers.get("content-type") != "application/json" or not await request.body():
            return await general(request)
        try:
            body = read(await request.json())
        except ValidationError:
            return await general(request)
        return await endpoint(request, body)

    return handle


async def _problem(request: Request, error: Exception) -> Response:
    """Answer what a route has raised."""
    raised = _unwrap(error)
    try:
        if isinstance(raised, ClientDisconnect):
            return Response(status_code=499)  # nobody reads it
        await service_of(request).admission.note_refusal(request, raised)
        return problems.problem(raised, request)
    finally:
        _forget_frames(error)


def _forget_frames(error: BaseException) -> None:
    """Part an error from the frames that it went through. Where one of them has a name for it, all
    of them, and the body of the request, would be kept until garbage is collected."""
    seen, left = set[int](), [error]  # whoever raises may have made the chain a ring
    while left:
        found = left.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        found.__traceback__ = None
        left += [one for one in (found.__cause__, found.__context__) if one is not None]


def _unwrap(error: Exception) -> Exception:
    """Return what our own reader raised, which comes out of FastAPI as a bare 400."""
    cause = error.__cause__ if isinstance(error, HTTPException) else None
    return cause if isinstance(cause, (HoldfastError, ClientDisconnect)) else error


def set_apart(routes: Sequence[StrictRoute]) -> None:
    """Tell each route which of its paths are another's: `…/{id}/{command}` spares `…/{id}/why`."""
    for route in routes:
        found = (_words(route.path, other.path) for other in routes)
        route.sparing = tuple(words for words in found if words)
        route.ends = frozenset(_end(route.path, other.path) for other in routes) - {b""}


def set_one_valued(routes: Sequence[StrictRoute]) -> None:
    """Let every route refuse a second header of a secret that any of them takes."""
    secrets = (route.need.secret for route in routes)
    headers = {secret.header.lower().encode() for secret in secrets if secret is not None}
    for route in routes:
        route.one_valued = ONE_VALUED | headers


def _end(path: str, longer: str) -> bytes:
    """Return the word by which ``longer`` goes on where ``path`` takes all the rest."""
    rest = longer.removeprefix(f"{path}/")
    is_one = path.endswith(":path}") and rest != longer and not set(rest) & set("/{")
    return rest.encode() if is_one else b""


def _words(path: str, closer: str) -> dict[str, str]:
    """Return the words that ``closer`` has for parameters, if that is all in which the paths
    differ."""
    ours, theirs, words = path.split("/"), closer.split("/"), dict[str, str]()
    if len(ours) != len(theirs):
        return words
    for mine, other in zip(ours, theirs, strict=True):
        if mine == other or (mine.startswith("{") and other.startswith("{")):
            continue
        if not mine.startswith("{"):
            return {}
        words[mine.strip("{}").partition(":")[0]] = other
    return words


class Routes(APIRouter):
    """The routes of one resource.

    The id of an operation in the OpenAPI document is made of its function's name. Clients are
    generated from these ids: a function that is renamed keeps the id by ``name`` in its decorator.
    The function's docstring is the description, and its first sentence the summary.
    """

    def __init__(self, tag: str) -> None:
        super().__init__(tags=[tag], route_class=StrictRoute)


def needs(
    role: Role | None,
    *problem_statuses: int,
    everywhere: bool = False,
    secret: ChatSecret | None = None,
    takes: type[BaseModel] | None = None,
    large: type[BaseModel] | None = None,
    also: Answers | None = None,
) -> dict[str, Any]:
    """Return what a route needs of its caller, and which problems it may answer with.

    ``secret``: the secret of a chat service, instead of a token.
    ``takes``: for a busy route that has the request and this body as its only parameters.
    ``large``: the body, if it may be as long as the settings allow; any other is short.
    ``also``: answers beside the usual one, by their status.
    """
    usual = (400, 401, 403, 413, 415, 422, 429, 503) if role is not None else ()
    need = Need(role, everywhere, secret)
    documented = problems.document_problems(*sorted({*usual, *problem_statuses}))
    return {
        "openapi_extra": {_NEED: need, _TAKES: takes, _LARGE: large},
        "responses": documented | (also or {}),
    }
