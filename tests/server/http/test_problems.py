"""Problem documents: in our words, with what to do, and as the documents say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.errors import HoldfastError
from holdfast.server.http import problems
from tests.server.conftest import Served

MAIL = b'{"type": "mail.send", "payload": "ann", "waitSeconds": 0}'
APPLY = "/api/workflows/apply"
ELSEWHERE = ("holdfast.cli.", "holdfast.testing.", "holdfast.server.serve", "tests.", "bench.")
API_MD = Path(__file__).parents[3] / "docs" / "api.md"


async def told(served: Served, method: str, path: str, **sent: Any) -> tuple[int, dict[str, Any]]:
    async with served.client() as client:
        answer = await client.request(method, path, **sent)
    return answer.status_code, answer.json()


# -- the kind of a body


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "json",
    ],
)
@pytest.mark.parametrize("path", [APPLY, "/api/tasks", "/api/tasks/some-task/cancel"])
async def test_a_body_that_is_not_said_to_be_json_is_refused_with_what_to_send(
    idle: Served, path: str, kind: str | None
) -> None:
    headers = {} if kind is None else {"content-type": kind}
    status, problem = await told(idle, "POST", path, content=MAIL, headers=headers)
    assert (status, problem["code"]) == (415, "unsupported-body")
    assert problem["detail"] == "send Content-Type: application/json"


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON; charset=utf-8", "application/vnd.shop+json"],
)
async def test_json_by_any_of_its_names_is_taken(idle: Served, kind: str) -> None:
    status, _ = await told(idle, "POST", APPLY, content=MAIL, headers={"content-type": kind})
    assert status == 202


async def test_where_nothing_need_be_sent_nothing_need_be_named(idle: Served) -> None:
    status, done = await told(idle, "POST", "/internal/queues/default/intake/pause")
    assert (status, done["paused"]) == (200, True)


# -- words


@pytest.mark.parametrize("half", ["\\ud800", "\\udfff", "\\ud83d", "\\ud83d\\ud83d"])
async def test_half_a_character_is_called_so(idle: Served, half: str) -> None:
    body = MAIL.replace(b"ann", half.encode())
    status, problem = await told(
        idle, "POST", APPLY, content=body, headers={"content-type": "application/json"}
    )
    assert (status, problem["code"]) == (422, "not-json")
    assert "lone surrogate" in problem["detail"]
    assert "truncated" not in problem["detail"]


@pytest.mark.parametrize("whole", ["\\ud83d\\ude00", "\\\\ud800", "\\\\\\ud83d\\ude00"])
async def test_a_whole_character_is_not_taken_for_half_of_one(idle: Served, whole: str) -> None:
    body = MAIL.replace(b"ann", whole.encode())
    typed = {"content-type": "application/json"}
    status, _ = await told(idle, "POST", APPLY, content=body, headers=typed)
    assert status == 202
    status, problem = await told(idle, "POST", APPLY, content=body[:-1], headers=typed)
    assert (status, problem["code"]) == (422, "not-json")
    assert "surrogate" not in problem["detail"]


@pytest.mark.parametrize(
    ("path", "headers", "where"),
    [
        ("/api/tasks/a/events", {"last-event-id": "no"}, "header.last-event-id"),
        ("/api/tasks/a/events?after=no", {}, "query.after"),
        ("/api/tasks?tenant=no%20good", {}, "query.tenant"),
        ("/api/tasks?cursor=no%20good", {}, "query.cursor"),
    ],
)
async def test_a_place_is_named_as_it_was_sent(
    idle: Served, path: str, headers: dict[str, str], where: str
) -> None:
    status, problem = await told(idle, "GET", path, headers=headers)
    assert status == 422
    assert [one["where"] for one in problem["errors"]] == [where]


async def test_a_place_within_a_body_is_named_down_to_its_field(idle: Served) -> None:
    status, problem = await told(
        idle, "POST", "/api/tasks", json={"tasks": [{"type": "mail.send", "tenant": "no good"}]}
    )
    assert status == 422
    assert [one["where"] for one in problem["errors"]] == ["body.tasks.0.tenant"]


async def test_a_field_of_the_senders_own_is_named_whatever_it_is_called(idle: Served) -> None:
    sent = {"type": "mail.send", "function-after": 1, "constrained-str": 2, "str": 3}
    status, problem = await told(idle, "POST", APPLY, json=sent)
    assert status == 422
    found = {one["where"] for one in problem["errors"]}
    assert found == {"body.function-after", "body.constrained-str", "body.str"}


@pytest.mark.parametrize("name", ["type", "tenant", "updatedAfter", "status"])
async def test_of_a_filter_what_is_not_asked_for_is_left_out(idle: Served, name: str) -> None:
    body = {"command": "cancel", "filter": {"queue": "default", name: None}, "dryRun": True}
    status, problem = await told(idle, "POST", "/internal/bulk", json=body)
    assert status == 422
    assert [one["where"] for one in problem["errors"]] == [f"body.filter.{name}"]


# -- cursors


LISTS = ["/api/tasks", "/internal/tasks/suspended", "/internal/bulk", "/api/triggers", "/api/plans"]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("cursor", ["a\tb", "a\nb", "\x7f", "ä", "a b", " ", "", "a" * 201])
async def test_a_cursor_that_no_page_gave_is_refused(idle: Served, path: str, cursor: str) -> None:
    status, problem = await told(idle, "GET", path, params={"cursor": cursor})
    may_be = cursor == "ä" and path == "/api/triggers"  # an id as any other
    assert status == (200 if may_be else 422), problem


# -- drawings


@pytest.mark.parametrize(
    ("drawn", "csp"),
    [
        ("svg", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
        ("mermaid", "default-src 'none'; frame-ancestors 'none'"),
    ],
)
async def test_a_drawing_may_use_the_styles_in_it_and_nothing_else(
    idle: Served, drawn: str, csp: str
) -> None:
    async with idle.client() as client:
        answer = await client.get("/internal/states", params={"format": drawn})
    assert answer.headers.get_list("content-security-policy") == [csp]
    assert ("style" in answer.text) is (drawn == "svg")


# -- codes


def test_every_code_is_in_the_document_with_its_status() -> None:
    assert documented() == answered()


def documented() -> set[tuple[int, str]]:
    table = re.findall(r"(?m)^\| ([0-9]{3}) \| (.*) \|$", API_MD.read_text())
    return {
        (int(status), code) for status, told in table for code in re.findall(r"`([a-z-]+)`", told)
    }


def answered() -> set[tuple[int, str]]:
    """By the errors that have a status, those that the framework raises, and our own."""
    kinds = {kind for root, _ in problems._STATUSES for kind in (root, *below(root))}
    ours = {
        (next(status for root, status in problems._STATUSES if issubclass(kind, root)), kind.code)
        for kind in kinds
    }
    return ours | set(problems._CODES.items()) | {(422, "invalid-request"), (500, "internal")}


def below(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    for one in kind.__subclasses__():
        if not one.__module__.startswith(ELSEWHERE):
            yield one
            yield from below(one)


async def test_what_nobody_serves_is_told_with_a_code_of_the_document(idle: Served) -> None:
    found = [await told(idle, "GET", "/nowhere"), await told(idle, "DELETE", "/api/tasks")]
    assert [(status, one["code"]) for status, one in found] == [
        (404, "not-found"),
        (405, "method-not-allowed"),
    ]


# -- a paused queue


async def test_doctor_tells_of_a_paused_queue_and_is_content(idle: Served) -> None:
    body = {"reason": "the relay is down", "force": True}
    await told(idle, "POST", "/internal/queues/mail/intake/pause", json=body)
    _, health = await told(idle, "GET", "/internal/doctor")
    [line] = health["waiting"]
    assert line.startswith("intake of queue mail has been paused for ")
    assert "the relay is down" in line
    assert health["stuck"] == []


async def test_why_tells_of_a_paused_queue_without_secrets(idle: Served) -> None:
    _, task = await told(
        idle, "POST", APPLY, content=MAIL, headers={"content-type": "application/json"}
    )
    body = {"reason": "password=hunter2 was leaked"}
    await told(idle, "POST", "/internal/queues/default/claiming/pause", json=body)
    _, why = await told(idle, "GET", f"/api/tasks/{task['taskId']}/why")
    assert "claiming of queue default has been paused for" in why["says"]
    assert "by api:admin" in why["says"]
    assert "hunter2" not in why["says"]
