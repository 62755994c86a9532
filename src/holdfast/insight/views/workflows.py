"""The JSON views of tasks as applications know them: what was accepted, and its outcome."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

import msgspec
from pydantic import Field

from holdfast.domain.redaction import Redactor
from holdfast.domain.task.envelope import ENVELOPE_STATUS, envelope, iso
from holdfast.domain.task.state import Status
from holdfast.insight.views import fields
from holdfast.insight.views.tasks import Error, body_or_none, failure_view, text_or_none
from holdfast.insight.views.view import Time, View, about, example
from holdfast.ports import Detail, Peek


class Accepted(View):
    """The answer for one task of a batch: its id, or why it was refused."""

    taskId: NotRequired[fields.TaskId | None]
    code: NotRequired[Annotated[str | None, example("queue-full")]]
    detail: NotRequired[str | None]


class Batched(View):
    tasks: Annotated[list[Accepted], example([{"taskId": fields.EXAMPLE_ID}])]
    accepted: Annotated[int, example(1)]
    refused: int


class ApplyResult(View):
    taskId: fields.TaskId
    status: Annotated[str, Field(examples=["completed", "processing", "suspended"])]
    taskStatus: Annotated[
        Status | None, example(Status.COMPLETED, "null while the store is out of reach")
    ]
    result: NotRequired[Annotated[Any, example({"at": 7})]]
    error: NotRequired[Annotated[Error | None, example(None)]]


class EnvelopeContextView(View):
    idempotencyKey: Annotated[str | None, example("upgrade-7")]
    traceId: Annotated[str | None, example("4bf92f3577b34da6a3ce929d0e0e4736")]
    user: Annotated[Any, example({"id": "u-17"})]


class EnvelopeRetry(View):
    count: Annotated[int, example(3)]
    max: Annotated[int, example(3)]
    nextAttemptAt: Annotated[int, about("Milliseconds since 1970; 0 if no attempt is planned")]
    outages: NotRequired[
        Annotated[
            int,
            Field(
                description="Outages in a row, which are not in the count",
                json_schema_extra={"default": 0},
            ),
        ]
    ]


class Envelope(View):
    """A task as applications know it."""

    taskId: fields.TaskId
    type: fields.TypeName
    payload: fields.Payload
    context: EnvelopeContextView
    retry: EnvelopeRetry
    status: Annotated[
        str, Field(examples=["suspended", "pending", "processing", "retry", "completed"])
    ]
    createdAt: Time
    updatedAt: Time
    taskStatus: Annotated[Status, example(Status.FAILED)]
    result: NotRequired[Annotated[Any, example(None)]]
    error: NotRequired[Error | None]
    reason: NotRequired[fields.Reason]


class UpdateAccepted(View):
    """The answer to an update of a chat service, which need not send it again."""

    ok: bool
    taskId: NotRequired[Annotated[fields.TaskId | None, about("The task that was created")]]
    ignored: NotRequired[Annotated[bool | None, about("True if no task was created")]]


EXAMPLE_PART = Batched(
    tasks=[
        {"taskId": fields.EXAMPLE_ID},
        {"code": "queue-full", "detail": "queue mail is full: 1000000 tasks wait"},
    ],
    accepted=1,
    refused=1,
)
EXAMPLE_UNFINISHED = ApplyResult(
    taskId=fields.EXAMPLE_ID, status=ENVELOPE_STATUS[Status.RUNNING], taskStatus=Status.RUNNING
)


def outcome_view(peek: Peek) -> ApplyResult:
    """Return the state of a task without its result."""
    return {
        "taskId": peek.task_id,
        "status": ENVELOPE_STATUS[peek.status],
        "taskStatus": peek.status,
    }


def envelope_view(detail: Detail, hide: Redactor, hide_result: Redactor) -> Envelope:
    task = detail.task
    view: Envelope = msgspec.json.decode(msgspec.json.encode(envelope(task, b"null")))
    view["payload"] = hide.body(detail.payload)
    view["context"]["user"] = hide.value(view["context"]["user"])
    view["reason"] = text_or_none(task.reason, hide)
    if detail.result is not None:
        view["result"] = hide_result.body(detail.result)
    if task.failure is not None:
        view["error"] = failure_view(task.failure, hide)
    return view


def tombstone_view(peek: Peek, hide_result: Redactor) -> Envelope:
    """Return the outcome of a deleted task, which is all that is left of it."""
    unknown = iso(0.0)
    return {
        "taskId": peek.task_id,
        "type": "",
        "payload": None,
        "context": {"idempotencyKey": None, "traceId": None, "user": {}},
        "retry": {"count": 0, "max": 0, "nextAttemptAt": 0},
        "status": ENVELOPE_STATUS[peek.status],
        "createdAt": unknown,
        "updatedAt": unknown,
        "taskStatus": peek.status,
        "result": body_or_none(peek.result, hide_result),
    }
