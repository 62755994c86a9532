"""The TaskEnvelope of the document, field for field, and the statuses it shows (Q1)."""

import json

import msgspec
import pytest

from holdfast.domain.task.envelope import ENVELOPE_STATUS, envelope, iso
from holdfast.domain.task.state import Status
from tests.support.task_records import NOW, task

# From "TaskEnvelope 设计" of the document, with its placeholders filled in; `taskStatus` is ours.
DOCUMENT = """{
  "taskId": "uuid",
  "type": "workflow.execute",
  "payload": {"order": [3, 1, 2], "empty": {}},
  "context": {
    "idempotencyKey": "wf-1",
    "traceId": "trace-1",
    "user": {"id": 7}
  },
  "retry": {
    "count": 0,
    "max": 3,
    "nextAttemptAt": 0
  },
  "status": "pending",
  "createdAt": "2023-11-14T22:13:20.000+00:00",
  "updatedAt": "2023-11-14T22:13:21.500+00:00",
  "taskStatus": "PENDING"
}"""

Q1 = {
    "pending": {Status.CREATED, Status.PENDING, Status.PAUSED},
    "processing": {Status.RUNNING, Status.ROLLING_BACK},
    "retry": {Status.RETRYING},
    "suspended": {Status.FAILED, Status.ROLLBACK_FAILED},
    "completed": {Status.COMPLETED, Status.CANCELLED, Status.ROLLED_BACK},
}


def test_the_json_is_the_documents_with_its_keys_in_order() -> None:
    record = task(
        id="uuid",
        type="workflow.execute",
        key="wf-1",
        trace_id="trace-1",
        user={"id": 7},
        updated_at=NOW + 1.5,
    )
    body = msgspec.json.encode(envelope(record, b'{"order":[3,1,2],"empty":{}}'))
    assert body.decode() == json.dumps(json.loads(DOCUMENT), separators=(",", ":"))


def test_what_was_not_given_is_null_or_empty() -> None:
    shown = msgspec.json.decode(msgspec.json.encode(envelope(task(), b"null")))
    assert shown["context"] == {"idempotencyKey": None, "traceId": None, "user": {}}
    assert shown["payload"] is None


def test_the_retry_shows_the_failures_so_far_and_the_next_time() -> None:
    record = task(Status.RETRYING, failures=2, retry_max=5, due=NOW + 60.25)
    shown = envelope(record, b"{}").retry
    assert (shown.count, shown.max, shown.next_attempt_at) == (2, 5, 1_700_000_060_250)


@pytest.mark.parametrize(
    ("shown", "status"), [(shown, status) for shown, row in Q1.items() for status in sorted(row)]
)
def test_a_status_is_shown_as_the_document_calls_it(shown: str, status: Status) -> None:
    made = envelope(task(status), b"{}")
    assert (made.status, made.task_status) == (shown, status)


def test_every_status_is_shown_as_something() -> None:
    assert set(ENVELOPE_STATUS) == set(Status) == set().union(*Q1.values())


def test_the_payload_is_handed_on_byte_for_byte() -> None:
    payload = b'{"n": 1.10, "list": [ ]}'
    assert payload in msgspec.json.encode(envelope(task(), payload))


def test_times_are_written_in_utc_with_milliseconds() -> None:
    assert iso(NOW + 0.0004) == "2023-11-14T22:13:20.000+00:00"


def test_of_a_traceparent_the_trace_is_shown() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    record = task(trace_id=f"00-{trace}-b7ad6b7169203331-01")
    assert envelope(record, b"{}").context.trace_id == trace
