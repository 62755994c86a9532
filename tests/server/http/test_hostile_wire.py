"""Requests that are wrong in their frame: heads, paths, lengths, and how slowly they come."""

import gzip
import socket
import zlib
from contextlib import ExitStack, suppress

import pytest

from holdfast.server.http import protocol
from tests.support.server.listener import Listening
from tests.support.server.wire import (
    APPLY,
    BIG,
    BOUND_SECONDS,
    JSON,
    ask,
    head,
    heard,
    order,
    send,
)

# -- the frame


@pytest.mark.parametrize("packed", ["gzip", "deflate", "br", "zstd", "gzip, identity"])
def test_what_is_packed_is_not_unpacked(server: Listening, packed: str) -> None:
    bomb = gzip.compress(b" " * BIG) if "gzip" in packed else zlib.compress(b" " * BIG)
    told = ask(server, "POST", APPLY, bomb, f"content-encoding: {packed}")
    assert (told.status, told.code) == (415, "unsupported-body")


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "application/octet-stream",
        "",
    ],
)
def test_another_kind_of_body_is_refused(server: Listening, kind: str) -> None:
    told = ask(server, "POST", APPLY, order(), f"content-type: {kind}")
    assert told.status in (415, 422), told.raw[:300]
    assert told.code


@pytest.mark.parametrize(
    "path",
    [
        "/api/tasks/%00",
        "/api/tasks/a%00b/why",
        "/api/tasks/%0d%0aset-cookie:%20a=b",
        "/api/tasks/%ff%fe",
        "/api/tasks/%ed%a0%80",
        "/api/tasks/" + "a" * 5000,
        "/api/tasks/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/api/tasks/..%5c..%5c",
        "/api/plans/%00",
        "/api/plans/a%0d%0ab",
        "/api/triggers/%00/next",
        "/internal/tenants/%00",
        "/internal/bulk/%00",
        "/api/workflows/tasks/%00",
        "/internal/tasks/suspended/%0a",
    ],
)
def test_a_strange_path_is_not_found_or_refused(server: Listening, path: str) -> None:
    told = ask(server, "GET", path)
    assert told.status in (404, 422), told.raw[:300]
    assert told.code
    assert "set-cookie" not in told.headers


@pytest.mark.parametrize(
    "path",
    [
        "/api/tasks/some-task%00/cancel",
        "/internal/workers/%00/drain",
        "/internal/workers/a%0d%0ab/drain",
        "/internal/queues/%00/intake/pause",
        "/internal/tenants/%0d%0a/retry",
        "/api/triggers/%00/fire",
        "/api/plans/%00/pause",
        "/internal/bulk/%00/stop",
    ],
)
def test_nothing_is_done_about_a_strange_name(server: Listening, path: str) -> None:
    told = ask(server, "POST", path)
    assert told.status in (404, 422), told.raw[:300]
    assert told.code


@pytest.mark.parametrize(
    "query",
    [
        "limit=1e999",
        "limit=" + "9" * 5000,
        "limit=%00",
        "cursor=%00",
        "cursor=%ff",
        "tenant=%0d%0a",
        "status=%00",
        "status=NOBODY",
        "updatedBefore=9999999999999999999999",
        "updatedBefore=0000-00-00T00:00:00Z",
        "nobody=1",
        "limit=1&limit=2&limit=x",
    ],
)
def test_a_strange_query_is_refused(server: Listening, query: str) -> None:
    told = ask(server, "GET", f"/api/tasks?{query}")
    assert told.status == 422, told.raw[:300]
    assert told.code


def test_a_hundred_thousand_parameters_are_refused(server: Listening) -> None:
    query = "&".join(f"a{number}=1" for number in range(100_000))
    assert ask(server, "GET", f"/api/tasks?{query}").status in (400, 0)
    short = "&".join(f"a{number}=1" for number in range(5_000))
    assert ask(server, "GET", f"/api/tasks?{short}").status == 422


@pytest.mark.parametrize(
    "lines",
    [
        ["x-long: " + "x" * 200_000],
        [f"x-{number}: 1" for number in range(20_000)],
        ["x-bad\x00name: 1"],
        ["x bad: 1"],
        [": 1"],
        ["no colon"],
    ],
)
def test_a_head_that_is_too_long_or_broken_is_refused(server: Listening, lines: list[str]) -> None:
    told = ask(server, "GET", "/api/tasks", None, *lines)
    assert told.status in (400, 431, 0), told.raw[:300]


@pytest.mark.parametrize("key", ["a b", "ä", "x" * 201, "a\tb", "a\x7fb", "{}", "a\x0bb"])
def test_a_key_in_the_header_has_the_alphabet_of_keys(server: Listening, key: str) -> None:
    told = ask(server, "POST", APPLY, order(), f"idempotency-key: {key}")
    assert told.status in (400, 422), told.raw[:300]


def test_a_broken_authorization_is_no_token(server: Listening) -> None:
    for text in ("Bearer \xff\xfe", "Bearer " + "x" * 10_000, "bearer", "Bearer hf__", "Basic x"):
        raw = f"GET /api/tasks HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: {text}"
        told = send(server, raw.encode("latin-1") + b"\r\n\r\n")
        assert told.status in (401, 429)


# -- two readings of one request


@pytest.mark.parametrize(
    "lines",
    [
        ["content-length: 4", "transfer-encoding: chunked"],
        ["transfer-encoding: chunked", "content-length: 4"],
        ["content-length: 4", "content-length: 40"],
        ["transfer-encoding: xchunked", "content-length: 4"],
        ["transfer-encoding: chunked, identity"],
        ["transfer-encoding : chunked"],
        ["transfer-encoding: \x0bchunked", "content-length: 4"],
    ],
)
def test_a_request_with_two_ends_carries_no_second_one(server: Listening, lines: list[str]) -> None:
    """What could be smuggled behind it is never answered."""
    start = head(server, "POST", APPLY, JSON, *lines).replace(b"connection: close\r\n", b"")
    hidden = head(server, "POST", APPLY, JSON, f"content-length: {len(order())}") + order()
    told = send(server, start, b"0\r\n\r\n", hidden)
    assert told.raw.count(b"HTTP/1.1 202") == 0
    assert told.raw.count(b"HTTP/1.1 200") == 0
    assert told.status in (400, 422, 0), told.raw[:300]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("//api/tasks", 404),
        ("/api//tasks", 404),
        ("/api/tasks/", 404),
        ("/api/tasks/../../internal/audit", 404),
        ("/./api/tasks", 404),
        ("/API/TASKS", 404),
        ("/api/tasks;x=1", 404),
        ("/api/tasks%2Fx%2Fwhy", 404),
    ],
)
def test_a_path_is_taken_by_its_word(server: Listening, target: str, status: int) -> None:
    assert ask(server, "GET", target).status == status


def test_an_address_in_the_first_line_is_no_other_service(server: Listening) -> None:
    told = ask(server, "GET", "http://elsewhere.example/api/tasks")
    assert told.status in (200, 400, 404)
    assert b"elsewhere" not in told.body


@pytest.mark.parametrize(
    "first",
    [
        "BREW /api/tasks HTTP/1.1",
        "get /api/tasks HTTP/1.1",
        "TRACE /api/tasks HTTP/1.1",
        "CONNECT here:80 HTTP/1.1",
        "GET  /api/tasks HTTP/1.1",
        "GET /api/tasks HTTP/9.9",
        "GET /api/tasks",
        "\x16\x03\x01\x02\x00",
        "PRI * HTTP/2.0",
    ],
)
def test_a_first_line_that_is_none_of_ours_is_refused(server: Listening, first: str) -> None:
    raw = f"{first}\r\nhost: here\r\nconnection: close\r\n\r\n".encode("latin-1")
    assert send(server, raw).status in (400, 401, 404, 405, 0)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "PURGE"])
def test_a_method_that_no_route_has_is_told_which_there_are(server: Listening, method: str) -> None:
    told = ask(server, method, "/api/tasks")
    if told.status != 400:  # the parser does not know it
        assert told.status == 405
        assert told.headers["allow"] == "GET, POST"


# -- slowly


def test_many_who_send_their_head_a_byte_at_a_time_do_not_hold_up_others(
    server: Listening,
) -> None:
    with ExitStack() as all_of_them:
        for _ in range(50):
            begin(server, all_of_them)
        assert ask(server, "GET", "/livez").status == 200


def test_none_of_them_is_waited_for(server: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as all_of_them, monkeypatch.context() as hurried:
        hurried.setattr(protocol, "FIRST_BYTE_SECONDS", 0.2)
        hurried.setattr(protocol, "HEAD_SECONDS", 0.2)
        lines = [begin(server, all_of_them) for _ in range(50)]
        assert [heard(line) for line in lines] == [b""] * 50


def begin(served: Listening, after: ExitStack) -> socket.socket:
    """With the first byte of a request, if it is not too late for that."""
    line = socket.create_connection((served.host, served.port), timeout=BOUND_SECONDS)
    after.enter_context(line)
    with suppress(ConnectionError):
        line.sendall(b"G")
    return line


def test_a_body_that_trickles_is_not_waited_for(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = head(server, "POST", APPLY, JSON, "content-length: 100")
    with monkeypatch.context() as hurried:
        hurried.setattr(protocol, "ARRIVE_SECONDS", 0.2)
        assert send(server, started, b"{").status in (0, 408)


def test_who_hangs_up_in_the_middle_leaves_nothing_behind(server: Listening) -> None:
    for cut in (10, 60, 200):
        with socket.create_connection((server.host, server.port), timeout=BOUND_SECONDS) as line:
            line.sendall((head(server, "POST", APPLY, JSON, "content-length: 900") + order())[:cut])
