"""A request that is no proper HTTP is refused itself, and no other in its place."""

import re
from collections.abc import Iterator

import pytest

from tests.server.conftest import declared
from tests.support.server.listener import Listening, listening
from tests.support.server.wire import APPLY, JSON, Told, head, kept, send

WORK = b'{"type": "mail.send", "payload": "ann", "waitSeconds": 0}'
CHUNKED = "transfer-encoding: chunked"
GARBAGE = b"no HTTP at all\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Listening]:
    with listening(declared(), workers=0) as served:
        yield served


def kept_alive(sent: bytes) -> bytes:
    return sent.replace(b"connection: close\r\n", b"")


def apply(served: Listening, *lines: str) -> bytes:
    return kept_alive(head(served, "POST", APPLY, JSON, *lines))


def statuses(told: Told) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", told.raw)]


def test_an_earlier_request_gets_its_own_answer(server: Listening) -> None:
    """All of it comes at once: the broken one is met before the first is carried out."""
    before = kept(server)
    work = apply(server, f"content-length: {len(WORK)}") + WORK
    told = send(server, work + GARBAGE)
    assert statuses(told) == [202, 400]
    assert kept(server) == before + 1
    assert b'"code":"bad-request"' in told.raw.rpartition(b"\r\n\r\n")[2]


def test_each_of_several_earlier_requests_gets_its_answer(server: Listening) -> None:
    look = kept_alive(head(server, "GET", "/api/tasks"))
    assert statuses(send(server, look * 3 + GARBAGE)) == [200, 200, 200, 400]


def test_a_broken_body_is_not_the_answer_to_an_earlier_request(server: Listening) -> None:
    look = kept_alive(head(server, "GET", "/api/tasks"))
    told = send(server, look * 2 + apply(server, CHUNKED) + b"zz\r\n")
    assert statuses(told) == [200, 200, 400]


def test_what_follows_a_broken_request_is_not_read(server: Listening) -> None:
    before = kept(server)
    work = apply(server, f"content-length: {len(WORK)}") + WORK
    assert statuses(send(server, GARBAGE + work)) == [400]
    assert statuses(send(server, work + GARBAGE + work)) == [202, 400]
    assert kept(server) == before + 1


@pytest.mark.parametrize(
    "body",
    [b"zz\r\n", b"-1\r\n", b"1000000000000000f\r\nx", b"0x2b\r\n", b"3\r\nabcXX\r\n0\r\n\r\n"],
    ids=str,
)
def test_a_broken_body_is_answered(server: Listening, body: bytes) -> None:
    before = kept(server)
    told = send(server, apply(server, CHUNKED), body)
    assert (told.status, told.code) == (400, "bad-request")
    assert kept(server) == before


@pytest.mark.parametrize("target", ["x:80", "file:///etc/passwd", "//", "http:"], ids=str)
def test_a_target_without_a_path_is_answered(server: Listening, target: str) -> None:
    method = "CONNECT" if target == "x:80" else "GET"
    told = send(server, head(server, method, target))
    assert told.status in (400, 404), told.raw
    assert told.code in ("bad-request", "wrong-host", "not-found")


@pytest.mark.parametrize("coding", ["xchunked", "gzip, chunked", "gzip", "identity", "chunked x"])
def test_a_body_in_another_coding_is_refused(server: Listening, coding: str) -> None:
    before = kept(server)
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(WORK), WORK)
    told = send(server, apply(server, f"transfer-encoding: {coding}") + body)
    assert (told.status, told.code) == (400, "bad-request")
    assert kept(server) == before


def test_a_chunked_body_is_read(server: Listening) -> None:
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(WORK), WORK)
    told = send(server, head(server, "POST", APPLY, JSON, "Transfer-Encoding: Chunked") + body)
    assert told.status == 202


def test_a_request_has_a_bounded_number_of_headers(server: Listening) -> None:
    told = send(server, head(server, "GET", "/livez", *["a:"] * 3000))
    assert (told.status, told.code) == (400, "bad-request")
    assert send(server, head(server, "GET", "/livez", *["a:"] * 300)).status == 200
