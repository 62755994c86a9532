"""Submission of tasks: from the body of a request to a stored task."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Header
from pydantic import AfterValidator, BeforeValidator, Field

from holdfast.domain import names
from holdfast.domain.errors import InvalidInput, InvalidName, UnknownQueue
from holdfast.registry import INTERNAL, OWN_QUEUES, TaskType
from holdfast.server.auth.access import Caller
from holdfast.server.http.problems import UnknownType
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import Service


def _decode_header(text: Any) -> Any:
    """Return the key that a header has. Its text comes as Latin-1: a key of other characters is
    percent-encoded, or its bytes are UTF-8. No key has a percent sign."""
    if not isinstance(text, str):
        return text
    try:
        sent = text.encode("latin-1")
        return unquote_to_bytes(sent).decode()
    except UnicodeError:
        raise InvalidName("key", text, "in a header it is percent-encoded UTF-8") from None


IdempotencyKey = Annotated[
    str | sc.Absent,
    BeforeValidator(_decode_header),
    AfterValidator(partial(names.check_any, "key")),
    Header(
        description="The `key` of the body; other characters than ASCII are percent-encoded UTF-8",
        examples=["upgrade-7"],
        json_schema_extra={"pattern": r"^[A-Za-z0-9%][A-Za-z0-9._:@+=/%-]{0,1799}$"},
    ),
]
Traceparent = Annotated[
    str | sc.Absent,
    Header(description="The W3C trace context, which is kept with the task", max_length=200),
]


class Work(sc.Sent):
    """A task to do."""

    type: sc.TypeName
    payload: Any = Field(default=None, examples=[{"version": 7}])
    tenant: sc.Tenant | None = None
    key: sc.Key | None = sc.optional(
        "A submission of the same tenant and key returns the same task"
    )
    queue: sc.QueueName | None = None
    trace_id: sc.TraceId | None = None
    user: dict[str, Any] | None = sc.optional("The user for whom the work is done")
    callback_url: str | None = Field(
        default=None,
        description="An https address that is notified when the task settles or waits for a person",
        examples=["https://hooks.example.com/done"],
        max_length=2000,
    )


def find_type(service: Service, name: str) -> TaskType:
    """Return the task type of this name; the engine's own types are not for callers."""
    declared = service.app.registry.find(name)
    if declared is None or name.startswith(INTERNAL):
        raise UnknownType(name)
    return declared


def known_queue(service: Service, queue: str | None) -> str | None:
    """Return the queue that a caller names, if some code or worker names it as well.

    A queue that nobody serves would only hide the task, and each new name is counted for ever. The
    engine's own queues are not for callers."""
    if queue is None:
        return None
    if queue in OWN_QUEUES or not is_known_queue(service, queue):
        raise UnknownQueue(queue)
    return queue


def is_known_queue(service: Service, queue: str) -> bool:
    """Return whether some code or worker names this queue."""
    if queue in service.settings.queue_names or queue in service.monitor.served:
        return True
    registry = service.app.registry
    types = map(registry.find, registry.names())
    return any(one is not None and one.queue == queue for one in types)


async def submit(
    service: Service, caller: Caller, work: Work, *, key: str | None, traceparent: str | None
) -> str:
    """Store a task, and return its id."""
    handle = await service.app.submit(
        find_type(service, work.type),
        work.payload,
        tenant=caller.tenant_for(work.tenant),
        key=one_key(work.key, key),
        queue=known_queue(service, work.queue),
        trace_id=work.trace_id or traceparent,
        user=work.user,
        callback=work.callback_url,
    )
    return handle.id


def one_key(in_body: str | None, in_header: str | None) -> str | None:
    if in_body is not None and in_header is not None and in_body != in_header:
        raise InvalidInput("key: the body and the header Idempotency-Key name two different ones")
    return in_body if in_body is not None else in_header
