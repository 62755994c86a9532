"""The outermost application of `holdfast serve`: what is decided before a request has a route."""

from __future__ import annotations

import logging

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.domain.errors import HoldfastError
from holdfast.server.http import hosts, problems
from holdfast.server.http.connections import Refusal
from holdfast.server.http.hosts import WrongHost
from holdfast.server.http.problems import Overloaded, TooManyConnections
from holdfast.server.http.routing import HEADERS
from holdfast.server.service import Service

REFUSAL = "holdfast.refusal"  # in the scope: why the connection has no place of its own
TARGET = "holdfast.target"  # in the scope: the authority of a target in absolute form
NO_ROUTE = "other"  # the route of the metric, where a request has not come to one
HEALTH = frozenset({"/livez", "/readyz", "/metrics"})  # outside every limit of the process


class Edge:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._requests_max = service.connection_limit  # with those whose clients have gone
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_health = scope["path"] in HEALTH
        error: HoldfastError | None = self._wrong_host(scope, is_health=is_health)
        if error is None and not is_health:
            error = self._refusal(scope)
        if error is not None:
            await self._refuse(error, scope, receive, send)
        elif is_health:
            await self._app(scope, receive, send)
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

    def _wrong_host(self, scope: Scope, *, is_health: bool) -> WrongHost | None:
        """Health checks name an address instead of a host, or in HTTP/1.0 none."""
        try:
            name = hosts.host_of(scope["headers"])
            if name is None:
                is_old = is_health and scope["http_version"] == "1.0"
                return None if is_old else WrongHost("the request has no Host header")
            target = scope.get(TARGET)
            if target is not None and hosts.name_of(target) != name:
                return WrongHost("the Host header is not the host of the request's target")
        except WrongHost as error:
            return error
        if is_health or hosts.is_allowed(name, self._service.settings.hosts):
            return None
        return WrongHost("the Host header names a host that is not served here")

    async def _refuse(
        self, error: HoldfastError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        response = problems.problem(error, Request(scope))
        response.raw_headers.extend([*HEADERS, (b"connection", b"close")])
        if isinstance(error, WrongHost):
            host = scope["client"][0] if scope["client"] else ""
            says = "a request from %s: %s"
            self._service.lines.say(logging.WARNING, says, host, error, of=host)
        self._service.metrics.http(scope["method"], NO_ROUTE, response.status_code, 0.0)
        await response(scope, receive, send)
