"""Errors as RFC 9457 problem documents, with a stable `code`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from holdfast.domain import errors as err
from holdfast.domain.errors import HoldfastError, InvalidInput
from holdfast.server.auth.access import Forbidden, RepeatedHeader, TooManyRequests, Unauthenticated

if TYPE_CHECKING:
    from holdfast.server.http.log_lines import LogLines

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5  # after which it may be worth another try
ERRORS_SHOWN_MAX = 20  # of what is wrong with a request
DETAIL_MAX_CHARS = 500


class WrongHost(HoldfastError, stored_name="WrongHost"):
    code = "wrong-host"


class BodyTooLarge(HoldfastError, stored_name="BodyTooLarge"):
    code = "body-too-large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the body has more than {limit_bytes} bytes")


class BodyTooWide(InvalidInput, stored_name="BodyTooWide"):
    code = "body-too-wide"


class UnsupportedBody(HoldfastError, stored_name="UnsupportedBody"):
    code = "unsupported-body"


class Stopping(HoldfastError, stored_name="Stopping"):
    code = "stopping"


class TooManyStreams(HoldfastError, stored_name="TooManyStreams"):
    """The process has reached its limit of streams."""

    code = "too-many-streams"


class TooManyOfToken(TooManyStreams, stored_name="TooManyOfToken"):
    """The token has reached its limit of streams; another token may have room."""

    code = "too-many-streams-of-token"


class TooManyWaits(HoldfastError, stored_name="TooManyWaits"):
    """The process has reached its limit of requests that wait for a result."""

    code = "too-many-waits"

    def __init__(self, limit: int, message: str = "{} requests wait for a result here") -> None:
        super().__init__(f"{message.format(limit)} already; ask with waitSeconds 0, or try again")


class TooManyWaitsOfToken(TooManyWaits, stored_name="TooManyWaitsOfToken"):
    """The token has reached its limit of requests that wait for a result."""

    code = "too-many-waits-of-token"

    def __init__(self, limit: int) -> None:
        super().__init__(limit, "{} requests of this token wait for a result")


class Overloaded(HoldfastError, stored_name="Overloaded"):
    """The process has reached a limit of its load."""

    code = "overloaded"

    def __init__(self, message: str = "the service has reached its limit of requests") -> None:
        super().__init__(f"{message}; try again later")


class TooManyConnections(HoldfastError, stored_name="TooManyConnections"):
    """The address has reached its limit of connections; another address may have room."""

    code = "too-many-connections"

    def __init__(self) -> None:
        super().__init__("this address has reached its limit of connections; close some")


class UnknownType(HoldfastError, stored_name="UnknownType"):
    code = "unknown-type"

    def __init__(self, name: str, where: str = "") -> None:
        at = f"{where}: " if where else ""
        super().__init__(f"{at}no task type {name} is declared here")


class NoSuchTenant(HoldfastError, stored_name="NoSuchTenant"):
    code = "tenant-not-found"

    def __init__(self, tenant: str) -> None:
        super().__init__(f"no task of tenant {tenant} is known")


class WrongField(BaseModel):
    where: str = Field(examples=["body.tasks.0.type"])
    says: str = Field(examples=["Field required"])


class Problem(BaseModel):
    """A problem document (RFC 9457). `code` is stable; `detail` is for people."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no task 0199a0b2c3d4"])
    code: str = Field(examples=["task-not-found"])
    task_id: str | None = Field(default=None, alias="taskId", examples=["0199a0b2c3d4"])
    errors: list[WrongField] | None = None


_STATUSES: tuple[tuple[type[HoldfastError], int], ...] = (
    (WrongHost, 400),
    (RepeatedHeader, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (TooManyRequests, 429),
    (BodyTooLarge, 413),
    (UnsupportedBody, 415),
    (Stopping, 503),
    (TooManyOfToken, 429),
    (TooManyStreams, 503),
    (TooManyWaitsOfToken, 429),
    (TooManyWaits, 503),
    (Overloaded, 503),
    (TooManyConnections, 429),
    (UnknownType, 404),
    (NoSuchTenant, 404),
    (err.PayloadTooLarge, 413),
    (err.CheckpointTooLarge, 413),
    (err.TaskNotFound, 404),
    (err.PlanNotFound, 404),
    (err.BulkNotFound, 404),
    (err.TriggerNotFound, 404),
    (err.WorkerNotFound, 404),
    (err.QueueFull, 503),
    (err.IntakePaused, 503),
    (err.Refused, 409),
    (err.TaskCancelled, 409),
    (err.TaskRolledBack, 409),
    (err.StoreError, 503),
    (err.InvalidInput, 422),
    (err.DeclarationError, 422),
)
_TITLES = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Content Too Large",  # Python before 3.13 has the older phrases of these two
    422: "Unprocessable Content",
}
_CODES = {404: "not-found", 405: "method-not-allowed", 400: "bad-request"}


def status_of(error: HoldfastError) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def document_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems of a route, for the OpenAPI document."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": _TITLES[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }


def problem(error: Exception, request: Request) -> Response:
    """Return the answer to an exception. One that nobody foresaw is logged, and not shown."""
    if isinstance(error, HoldfastError):
        return _of_ours(error, request)
    if isinstance(error, RequestValidationError):
        return _of_request(error)
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "http-error")
        return _answer(error.status_code, code, str(error.detail), error.headers)
    _log(request, "%s %s failed", request.method, request.scope["path"], error=error)
    return _answer(500, "internal", "internal error; the service's log has the details")


def bad_request(detail: str) -> Response:
    """Return the answer to a request that is no proper HTTP."""
    return _answer(400, _CODES[400], detail)


def _log(request: Request, kind: str, *parts: object, error: Exception) -> None:
    lines: LogLines = request.app.state.holdfast.lines
    lines.say(logging.ERROR, kind, *parts, exc_info=error)


def _of_ours(error: HoldfastError, request: Request) -> Response:
    status, headers = status_of(error), dict[str, str]()
    if isinstance(error, TooManyRequests):
        headers["retry-after"] = str(max(1, round(error.retry_seconds)))
    elif status in (429, 503):
        headers["retry-after"] = str(RETRY_SECONDS)
    elif status == 401:
        headers["www-authenticate"] = "Bearer"
    if status == 500:
        _log(request, "unexpected error: %s", error, error=error)
    return _answer(status, error.code, str(error), headers, task_id=getattr(error, "task_id", None))


def _of_request(error: RequestValidationError) -> Response:
    wrong = [
        {"where": _where(one["loc"]), "says": one["msg"]}
        for one in error.errors()[:ERRORS_SHOWN_MAX]
        if one["type"] != "none_required"  # it may be left out, and there is no null
    ]
    detail = "; ".join(f"{one['where']}: {one['says']}" for one in wrong[:3])
    return _answer(422, "invalid-request", detail, errors=wrong)


def _where(place: tuple[str | int, ...]) -> str:
    """Name the field; below a parameter of a query or a header stand parts of its type."""
    if place[0] != "body":
        place = place[:2] + tuple(one for one in place[2:] if isinstance(one, int))
    return ".".join(map(str, place))


def _answer(
    status: int,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    *,
    task_id: str | None = None,
    errors: list[dict[str, str]] | None = None,
) -> Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "detail": _plain(detail)[:DETAIL_MAX_CHARS],
        "code": code,
    }
    if task_id:
        body["taskId"] = _plain(task_id)
    if errors:
        body["errors"] = [{name: _plain(text) for name, text in one.items()} for one in errors]
    return Response(msgspec.json.encode(body), status, dict(headers or {}), media_type=MEDIA_TYPE)


def _plain(text: str) -> str:
    """Return a text without what a terminal or a log would obey; a caller may have sent parts of
    it."""
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode()
        for mark in text[: 4 * DETAIL_MAX_CHARS].encode(errors="backslashreplace").decode()
    )
