"""What nobody sends by mistake, over a real connection: refused, nothing kept, and it goes on."""

import json
import socket

import pytest

from tests.support.server.listener import Listening, listening
from tests.support.server.wire import (
    APPLY,
    BIG,
    BOUND_SECONDS,
    JSON,
    Told,
    ask,
    free,
    head,
    heard,
    order,
    send,
)

DEEP = 1001


# -- too much


def test_ten_megabytes_are_refused_by_their_announcement(server: Listening) -> None:
    told = send(server, head(server, "POST", APPLY, JSON, f"content-length: {BIG}"))
    assert (told.status, told.code) == (413, "body-too-large")


def test_ten_megabytes_are_refused_when_they_come(server: Listening) -> None:
    told = ask(server, "POST", APPLY, order('"' + "x" * BIG + '"'))
    assert told.status in (413, 0)


def test_ten_megabytes_in_pieces_are_refused_on_the_way(server: Listening) -> None:
    start = head(server, "POST", APPLY, JSON, "transfer-encoding: chunked")
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    told = send(server, start, *[piece] * (BIG // 0x10000), b"0\r\n\r\n")
    assert told.status in (413, 0)


def test_a_payload_over_its_own_limit_is_refused(server: Listening) -> None:
    told = ask(server, "POST", APPLY, order('"' + "x" * 2 * 1024 * 1024 + '"'))
    assert (told.status, told.code) == (413, "payload-too-large")


@pytest.mark.parametrize(
    "announced", ["1", "-1", "+5", "5, 5", "0x10", "999999999999999999999", ""]
)
def test_a_length_that_lies_is_refused(server: Listening, announced: str) -> None:
    start = head(server, "POST", APPLY, JSON, f"content-length: {announced}")
    told = send(server, start, order())
    assert told.status in (400, 413, 422, 0), told.raw[:200]


def test_a_body_that_ends_early_is_not_taken_for_a_whole_one(server: Listening) -> None:
    with socket.create_connection((server.host, server.port), timeout=BOUND_SECONDS) as line:
        line.sendall(head(server, "POST", APPLY, JSON, "content-length: 5000") + order())
        line.shutdown(socket.SHUT_WR)
        assert Told(heard(line)).status in (0, 400)


BODIES = [
    ("POST", APPLY),
    ("POST", "/api/tasks"),
    ("POST", "/api/tasks/some-task/cancel"),
    ("POST", "/api/plans"),
    ("POST", "/api/plans/some-plan/pause"),
    ("POST", "/api/triggers"),
    ("POST", "/api/triggers/nightly/fire"),
    ("POST", "/internal/tasks/suspended/some-task/resume"),
    ("POST", "/internal/tasks/suspended/some-task/discard"),
    ("POST", "/internal/bulk"),
    ("POST", "/internal/bulk/some-bulk/stop"),
    ("POST", "/internal/workers/scale"),
    ("POST", "/internal/workers/nobody/drain"),
    ("POST", "/internal/queues/default/intake/pause"),
    ("POST", "/internal/tenants/query"),
    ("POST", "/internal/tenants/t-1/retry"),
    ("POST", "/internal/doctor/fix"),
]


@pytest.mark.parametrize(("method", "path"), BODIES)
@pytest.mark.parametrize("shape", ["[", '{"a":'])
def test_json_that_is_nested_a_thousand_times_is_refused_everywhere(
    server: Listening, method: str, path: str, shape: str
) -> None:
    body = shape * DEEP + "1" + ("]" if shape == "[" else "}") * DEEP
    told = ask(server, method, path, body.encode())
    assert told.status == 422, told.raw[:300]
    assert told.code in ("payload-too-deep", "not-json", "invalid-request")


@pytest.mark.parametrize("field", ["payload", "user"])
@pytest.mark.parametrize("depth", [DEEP, 100])
def test_what_is_nested_too_deep_within_a_field_is_refused(
    server: Listening, field: str, depth: int
) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    body = f'{{"type": "free", "waitSeconds": 0, "{field}": {deep}}}'
    told = ask(server, "POST", APPLY, body.encode())
    assert (told.status, told.code) == (422, "payload-too-deep")


@pytest.mark.parametrize(("method", "path"), BODIES)
@pytest.mark.parametrize(
    "body", [b"{", b"nul", b"[1,]", b"'a'", b"\xef\xbb\xbf{}", b"{}{}", b"\x00"]
)
def test_what_is_no_json_is_refused_everywhere(
    server: Listening, method: str, path: str, body: bytes
) -> None:
    told = ask(server, method, path, body)
    assert told.status == 422, told.raw[:300]
    assert told.code


# -- numbers and text that JSON does not have


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", str(2**63), str(-(2**63) - 1), "1" * 5000],
)
def test_a_number_that_cannot_be_kept_is_refused(server: Listening, value: str) -> None:
    for body in (order(value), order(f'{{"a": [{value}]}}')):
        told = ask(server, "POST", APPLY, body)
        assert told.status == 422, (value, told.raw[:300])
        assert told.code in ("not-json", "invalid-payload", "payload-not-json"), told.raw


def test_the_largest_numbers_that_are_kept_are_kept() -> None:
    with listening(free(), workers=0) as other:
        for value in (2**63 - 1, -(2**63)):
            assert ask(other, "POST", APPLY, order(str(value))).status == 202


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '"\\udfff"', '"a\\u0000b"', '"a\x00b"', '"\\ud83d"', '"a\nb"']
)
def test_text_that_cannot_be_written_is_refused_wherever_it_is(
    server: Listening, text: str
) -> None:
    bodies = [
        order(text),
        order(f'{{"a": [{text}]}}'),
        order(f"{{{text}: 1}}"),
        f'{{"type": {text}, "waitSeconds": 0}}'.encode(),
        f'{{"type": "free", "tenant": {text}, "waitSeconds": 0}}'.encode(),
        f'{{"type": "free", "key": {text}, "waitSeconds": 0}}'.encode(),
        f'{{"type": "free", "user": {{"name": {text}}}, "waitSeconds": 0}}'.encode(),
        f'{{"type": "free", "traceId": {text}, "waitSeconds": 0}}'.encode(),
    ]
    for body in bodies:
        told = ask(server, "POST", APPLY, body)
        assert told.status == 422, (body, told.raw[:300])
        assert told.code


@pytest.mark.parametrize("wrong", [b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_bytes_that_are_no_utf8_are_refused(server: Listening, wrong: bytes) -> None:
    told = ask(server, "POST", APPLY, order('"@"').replace(b"@", wrong))
    assert (told.status, told.code) == (422, "not-json")


@pytest.mark.parametrize(
    "body",
    [
        b'{"type": "free", "type": "mail.send", "waitSeconds": 0}',
        b'{"type": "free", "payload": {"a": 1, "a": 2}, "waitSeconds": 0}',
        b'{"type": "free", "payload": 1, "payload": 2, "waitSeconds": 0}',
    ],
)
def test_a_key_that_comes_twice_is_refused(server: Listening, body: bytes) -> None:
    """Or a gate before us and we would read two different things."""
    told = ask(server, "POST", APPLY, body)
    assert told.status == 422, told.raw[:300]
    assert told.code == "not-json"


NAMES = [
    "a\r\nb",
    "a\nb",
    "a\rb",
    "\x1b[31ma",
    "a b",
    "",
    " ",
    "a" * 201,
    "../x",
    "a\u2028b",
    "ä\u202eb",
    "\u0301a",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["type", "tenant", "key", "queue"])
def test_a_name_out_of_its_alphabet_is_refused(server: Listening, field: str, name: str) -> None:
    told = ask(server, "POST", APPLY, json.dumps({"type": "free", field: name}).encode())
    code = "invalid-request" if name.isascii() else "invalid-name"
    assert (told.status, told.code) == (422, code)
    marks = (b"\r", b"\n", b"\x1b", "\u2028".encode(), "\u202e".encode())
    assert not any(mark in told.body for mark in marks), "told as it came"
