"""What is decided before a request has a route: its host, its trailers, and what is no HTTP."""

import logging
import socket
from collections.abc import Iterator

import httpx
import pytest

from holdfast.domain.errors import InvalidSetting
from holdfast.server.http.limits import BURST_SECONDS
from holdfast.server.http.log_lines import LINES_RATE
from holdfast.settings import load
from holdfast.testing.clock import ManualClock
from tests.server.conftest import declared
from tests.support.server.listener import BOUND_SECONDS, Listening, listening
from tests.support.server.wire import APPLY, JSON, Told, head, send
from verify.servers.poll import until

LINES_AT_ONCE = BURST_SECONDS * LINES_RATE
HEALTH = ("/livez", "/readyz", "/metrics")


@pytest.fixture(scope="module")
def server() -> Iterator[Listening]:
    with listening(declared(), workers=0) as served:
        yield served


@pytest.fixture
def fresh() -> Iterator[Listening]:
    """Which has written nothing yet, by a clock that stands still."""
    with listening(declared(clock=ManualClock()), workers=0) as served:
        yield served


@pytest.fixture(scope="module")
def named() -> Iterator[Listening]:
    """Which serves some hosts only."""
    app = declared(hosts="API.example.com, *.intern.example., 10.0.0.1, [::1]")
    with listening(app, workers=0) as served:
        yield served


# -- the host


def get(served: Listening, path: str, *lines: str, version: str = "1.1") -> Told:
    bearer = f"authorization: Bearer {served.tokens['admin']}"
    made = [f"GET {path} HTTP/{version}", "connection: close", bearer, *lines, "", ""]
    return send(served, "\r\n".join(made).encode("latin-1"))


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("host: here", "host: here"),
        ("host: here", "Host: there"),
        ("host:",),
        ("host: a b",),
        ("host: here,there",),
        ("host: user@here",),
        ("host: here/path",),
        ("host: here:port",),
        ("host: here:70000",),
        ("host: here:80:80",),
        ("host: [::1",),
        ("host: [:::1]:80",),
        ("host: ::1",),
        ("host: h\xe9re",),
        (f"host: {'x' * 300}",),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/api/tasks", "/livez", "/none"])
def test_there_is_exactly_one_well_formed_host(
    server: Listening, path: str, lines: tuple[str, ...]
) -> None:
    told = get(server, path, *lines)
    assert (told.status, told.code) == (400, "wrong-host")
    assert told.headers["connection"] == "close"


@pytest.mark.parametrize(
    "host", ["here", "here:8080", "HERE.example.", "10.0.0.1:80", "[::1]", "[fe80::1]:8080", "a_b"]
)
def test_a_well_formed_host_is_good_where_none_are_named(server: Listening, host: str) -> None:
    assert get(server, "/api/tasks", f"host: {host}").status == 200


@pytest.mark.parametrize(
    ("host", "is_good"),
    [
        ("api.example.com", True),
        ("Api.Example.COM.:8080", True),
        ("a.intern.example", True),
        ("a.b.intern.example", True),
        ("10.0.0.1:80", True),
        ("[0::1]:80", True),
        ("intern.example", False),
        ("xintern.example", False),
        ("example.com", False),
        ("api.example.com.evil.test", False),
        ("10.0.0.2", False),
        ("127.0.0.1", False),
    ],
)
def test_only_the_hosts_that_are_named_are_served(
    named: Listening, host: str, is_good: bool
) -> None:
    told = get(named, "/api/tasks", f"host: {host}")
    assert told.status == (200 if is_good else 400)
    assert is_good or told.code == "wrong-host"
    assert b"intern" not in told.body or is_good, "the list is not told"


@pytest.mark.parametrize("path", HEALTH)
def test_health_checks_may_come_by_address(named: Listening, path: str) -> None:
    assert get(named, path, "host: 10.42.0.17:8080").status == 200
    assert get(named, path, version="1.0").status == 200, "an old one names no host at all"
    assert get(named, path).status == 400
    assert get(named, "/api/tasks", version="1.0").status == 400


def test_the_host_of_a_whole_url_is_the_host_of_the_request(named: Listening) -> None:
    good = "http://api.example.com/api/tasks"
    assert get(named, good, "host: api.example.com").status == 200
    for target, host in ((good, "a.intern.example"), ("http://evil.test/livez", "api.example.com")):
        told = get(named, target, f"host: {host}")
        assert (told.status, told.code) == (400, "wrong-host")


@pytest.mark.parametrize("hosts", ["*", "*example.com", "a b", "http://a", "a:80", "a..b", "é.fr"])
def test_a_wrong_word_in_the_list_stops_the_start(hosts: str) -> None:
    with pytest.raises(InvalidSetting, match="HOLDFAST_HOSTS"):
        load(hosts=hosts)


# -- trailers


def test_a_trailer_is_no_header(server: Listening) -> None:
    """Neither a token nor a key, whenever it comes."""
    chunked = ("content-type: application/json", "transfer-encoding: chunked")
    lines = ["POST /internal/tenants/query HTTP/1.1", "host: here", "connection: close", *chunked]
    body = b'{"tenants":["t-1"]}'
    for trailer in (f"authorization: Bearer {server.tokens['admin']}", "host: other"):
        sent = "\r\n".join([*lines, "", ""]).encode() + b"%x\r\n%s\r\n" % (len(body), body)
        told = send(server, sent + f"0\r\n{trailer}\r\n\r\n".encode())
        assert (told.status, told.code) == (401, "unauthenticated")


def test_a_key_in_a_trailer_is_not_taken(server: Listening) -> None:
    body = b'{"type": "mail.send", "payload": "ann", "waitSeconds": 0}'
    started = head(server, "POST", APPLY, JSON, "transfer-encoding: chunked")
    sent = started + b"%x\r\n%s\r\n0\r\nidempotency-key: one\r\n\r\n" % (len(body), body)
    tasks = {send(server, sent).body for _ in range(2)}
    assert len(tasks) == 2, "two tasks, not one for the same key"


# -- what is no HTTP, and what asks for another protocol


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_what_is_no_http_is_answered_and_logged_within_bounds(
    fresh: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    raw = b"\x16\x03\x01\x1b[31mRED\r\n\r\n"
    for _ in range(200):
        told = send(fresh, raw)
        assert (told.status, told.code) == (400, "bad-request")
    found = [line for line in lines_of(caplog) if "request" in line]
    assert 0 < len(found) <= LINES_AT_ONCE
    assert all(line.isprintable() and "RED" not in line for line in found), found


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_upgrade_is_answered_in_http_and_logged_within_bounds(
    fresh: Listening, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    more = ("http2-settings: AAMAAABkAARAAAAAAAIAAAAA", "sec-websocket-key: eA==")
    lines = [f"upgrade: {protocol}", "connection: Upgrade, HTTP2-Settings", *more]
    for _ in range(100):
        raw = "\r\n".join(["GET /livez HTTP/1.1", "host: here", *lines, "", ""]).encode()
        told = send(fresh, raw)
        assert (told.status, told.headers["connection"]) == (200, "close")
    found = lines_of(caplog)
    assert 0 < len([line for line in found if "request" in line]) <= LINES_AT_ONCE
    assert sum("another protocol" in line for line in found) > 0


# -- who hangs up


def test_who_hangs_up_in_the_body_is_499_without_a_traceback(
    server: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (APPLY, "/api/tasks", "/internal/tenants/query"):
        with socket.create_connection((server.host, server.port), timeout=BOUND_SECONDS) as line:
            line.sendall(head(server, "POST", path, JSON, "content-length: 900") + b'{"type":')
        counted = f'method="POST",route="{path}",status="499"'
        until(lambda counted=counted: counted in metrics(server), "it is counted")  # type: ignore[misc]
    assert [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR] == []
    assert 'status="500"' not in metrics(server)


def metrics(served: Listening) -> str:
    return httpx.get(f"{served.url}/metrics", headers=served.bearer()).text
