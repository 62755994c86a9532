"""The outermost application of `holdfast serve`: what is decided before a request has a route."""

from __future__ import annotations

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.domain.errors import HoldfastError
from holdfast.server import problems
from holdfast.server.connections import Refusal
from holdfast.server.problems import Overloaded, TooManyConnections
from holdfast.server.routing import HEADERS

REFUSAL = "holdfast.refusal"  # in the scope: why the connection has no place of its own
HEALTH = frozenset({"/livez", "/readyz", "/metrics"})  # outside every limit of the process


class Edge:
    def __init__(self, app: ASGIApp, *, requests_max: int) -> None:
        """``requests_max``: under way at once, with those whose clients have gone."""
        self._app = app
        self._requests_max = requests_max
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in HEALTH:
            await self._app(scope, receive, send)
        elif (error := self._refusal(scope)) is not None:
            await _refuse(error, scope, receive, send)
        else:
            self._under_way += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._under_way -= 1

    def _refusal(self, scope: Scope) -> HoldfastError | None:
        match scope.get(REFUSAL):
            case Refusal.ADDRESS:
                return TooManyConnections()
            case Refusal.PROCESS:
                return Overloaded("as many connections are open here as there may be")
        return Overloaded() if self._under_way >= self._requests_max else None


async def _refuse(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    response = problems.problem(error, Request(scope))
    response.raw_headers.extend([*HEADERS, (b"connection", b"close")])
    await response(scope, receive, send)
