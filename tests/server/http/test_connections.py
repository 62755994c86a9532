"""Connections: so many of one process and of one address, and always one for a health check."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from holdfast.domain.errors import InvalidSetting
from holdfast.server.http import protocol
from holdfast.server.http.edge import (
    RESERVED_MAX,
    ConnectionPlace,
    Connections,
    Refusal,
    limit_within_files,
)
from holdfast.settings import load
from tests.server.conftest import declared
from tests.support.server.listener import BOUND_SECONDS, Listening, listening
from tests.support.server.processes import Serving
from tests.support.server.wire import Told, heard
from verify.servers.poll import until

LIMIT, OF_ADDRESS = 16, 4
STRANGERS = [f"127.0.1.{number}" for number in range(1, 6)]
HEALTH = ("/livez", "/readyz", "/metrics")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """Which does not end silent connections by itself while the test runs."""
    monkeypatch.setattr(protocol, "FIRST_BYTE_SECONDS", 3600.0)
    with listening(declared(connection_limit=LIMIT), workers=0) as served:
        yield served


def connect(served: Listening, host: str, after: ExitStack) -> socket.socket:
    line = socket.create_connection(
        (served.host, served.port), timeout=BOUND_SECONDS, source_address=(host, 0)
    )
    return after.enter_context(line)


def asked(served: Listening, path: str, host: str) -> Told:
    """What a new connection from this address is answered."""
    with ExitStack() as after:
        line = connect(served, host, after)
        bearer = f"authorization: Bearer {served.tokens['admin']}"
        line.sendall(f"GET {path} HTTP/1.1\r\nhost: here\r\n{bearer}\r\n\r\n".encode())
        return Told(until_answered(line))


def until_answered(line: socket.socket) -> bytes:
    found = b""
    while b"\r\n\r\n" not in found and (part := line.recv(65536)):
        found += part
    size = int(Told(found).headers.get("content-length", 0)) if found else 0
    while len(found.partition(b"\r\n\r\n")[2]) < size and (part := line.recv(65536)):
        found += part
    return found


def until_open(served: Listening, count: int) -> None:
    until(lambda: served.service.connections.taken == count, f"{count} are open")


# -- of one address


def test_one_address_cannot_take_the_places_of_others(server: Listening) -> None:
    with ExitStack() as after:
        for _ in range(OF_ADDRESS):
            connect(server, "127.0.1.1", after)
        until_open(server, OF_ADDRESS)
        refused = asked(server, "/api/tasks", "127.0.1.1")
        assert (refused.status, refused.code) == (429, "too-many-connections")
        assert refused.headers["retry-after"]
        assert refused.headers["connection"] == "close"
        assert asked(server, "/api/tasks", "127.0.1.2").status == 200


def test_an_address_that_has_too_many_is_told_of_health_all_the_same(server: Listening) -> None:
    with ExitStack() as after:
        for _ in range(10 * LIMIT):
            connect(server, "127.0.1.1", after)
        for path in HEALTH:
            told = asked(server, path, "127.0.1.1")
            assert (told.status, told.headers["connection"]) == (200, "close")
        assert server.service.connections.taken <= OF_ADDRESS + RESERVED_MAX


def test_a_connection_that_ends_leaves_its_place(server: Listening) -> None:
    for _ in range(3):
        with ExitStack() as after:
            for _ in range(OF_ADDRESS):
                connect(server, "127.0.1.1", after)
            until_open(server, OF_ADDRESS)
        until_open(server, 0)
    assert asked(server, "/api/tasks", "127.0.1.1").status == 200


def test_a_trusted_proxy_has_no_limit_of_its_own() -> None:
    app = declared(connection_limit=LIMIT, trusted_proxies="127.0.1.0/24")
    with listening(app, workers=0) as served, ExitStack() as after:
        for _ in range(LIMIT - 1):
            connect(served, "127.0.1.1", after)
        until_open(served, LIMIT - 1)
        assert asked(served, "/api/tasks", "127.0.1.1").status == 200


# -- of the process


def test_silent_strangers_give_way_to_those_who_ask(server: Listening) -> None:
    with ExitStack() as after:
        lines = [connect(server, host, after) for host in STRANGERS for _ in range(OF_ADDRESS)]
        until_open(server, LIMIT)
        assert asked(server, "/api/tasks", "127.0.2.1").status == 200
        assert heard(lines[0]) == b"", "the one that was silent for longest is closed"
        metrics = httpx.get(f"{server.url}/metrics", headers=server.bearer()).text
        assert 'holdfast_http_connections_refused_total{reason="gave-way"}' in metrics


def test_health_is_answered_when_every_connection_is_busy(server: Listening) -> None:
    """And nothing else is, on a connection above the bound."""
    body = b'{"type": "mail.send", "payload": "ann", "waitSeconds": 120}'
    with ExitStack() as after:
        for number in range(LIMIT):
            line = connect(server, STRANGERS[number % 5], after)
            bearer = f"authorization: Bearer {server.tokens['admin']}"
            if number % 2:
                rest = f"POST /api/workflows/apply HTTP/1.1\r\ncontent-length: {len(body)}\r\n"
                sent = body
            else:
                rest, sent = "GET /internal/alerts/events HTTP/1.1\r\n", b""
            head = f"{rest}host: here\r\ncontent-type: application/json\r\n{bearer}\r\n\r\n"
            line.sendall(head.encode() + sent)
        service = server.service
        until(
            lambda: (
                service.long_requests.waits.taken + service.long_requests.streams.taken == LIMIT
            ),
            "all are busy",
        )
        for path in HEALTH:
            assert asked(server, path, "127.0.2.1").status == 200
        refused = asked(server, "/api/tasks", "127.0.2.1")
        assert (refused.status, refused.code) == (503, "overloaded")
        crowd = [connect(server, f"127.0.3.{number}", after) for number in range(1, 100)]
        assert heard(crowd[0]) == b"", "a silent one is not kept above the bound"
        assert service.connections.taken <= LIMIT + RESERVED_MAX
        assert asked(server, "/livez", "127.0.2.1").status == 200


def test_what_follows_a_request_is_waited_for_within_bounds(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines begin no request, and would keep a connection open for ever."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    with ExitStack() as after:
        line = connect(server, "127.0.1.1", after)
        line.sendall(b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n")
        assert until_answered(line).startswith(b"HTTP/1.1 200")
        line.sendall(b"\r\n")
        assert heard(line) == b""


# -- the count


def places(limit: int = 8, of_address: int = 2) -> Connections:
    return Connections(limit=limit, of_address=of_address, on_refused=lambda *_: None)


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("10.0.0.1", "10.0.0.2", False),
    ],
)
def test_an_address_of_ipv6_counts_by_its_network(first: str, second: str, is_same: bool) -> None:
    connections = places(of_address=1)
    taken = connections.take(first)
    assert taken is not None
    assert taken.refusal is None
    other = connections.take(second)
    assert other is not None
    assert other.refusal == (Refusal.ADDRESS if is_same else None)


def test_a_place_is_given_back_once() -> None:
    connections = places()
    first = connections.take("10.0.0.1")
    assert isinstance(first, ConnectionPlace)
    assert connections.take("10.0.0.1") is not None
    first.leave()
    first.leave()
    first.rest()  # an answer may come to its end when the connection has gone
    assert connections.taken == 1
    third = connections.take("10.0.0.1")
    assert third is not None
    assert third.refusal is None


def test_one_that_was_dropped_before_it_had_begun_is_closed_when_it_begins() -> None:
    connections = places(limit=1)
    first, second = connections.take("10.0.0.1"), connections.take("10.0.0.2")
    assert first is not None
    assert second is not None
    assert (first.is_dropped, second.is_dropped) == (True, False)


def test_when_all_are_busy_a_new_one_has_a_reserved_place_and_then_none() -> None:
    connections = places(limit=1)
    busy = connections.take("10.0.0.1")
    assert busy is not None
    busy.begin()
    for number in range(RESERVED_MAX):
        reserved = connections.take(f"10.0.1.{number}")
        assert reserved is not None
        assert reserved.refusal == Refusal.PROCESS
        reserved.begin()
    assert connections.take("10.0.2.1") is None
    assert connections.taken == 1 + RESERVED_MAX


# -- files


@pytest.mark.parametrize(("files", "limit"), [(400, 200), (20, 16), (9_000, 2_000), (-1, 2_000)])
def test_half_of_the_files_that_may_be_open_are_left_to_the_work(
    monkeypatch: pytest.MonkeyPatch, files: int, limit: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert limit_within_files(2_000) == limit


@pytest.mark.parametrize("args", [(), ("--no-workers", "--processes", "1")])
def test_the_limit_on_open_files_is_raised_and_leaves_room_for_stages(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    """Strangers from many addresses open as many as they can, and a stage opens 100 files."""
    app = """
from holdfast import Context, Holdfast
from contextlib import ExitStack

app = Holdfast()

@app.task("opens")
async def opens(ctx: Context, count: int) -> int:
    with ExitStack() as files:
        return len([files.enter_context(open("/dev/null")) for _ in range(count)])
"""
    with Serving(tmp_path, *args, app=app, files="64 400") as serving, ExitStack() as after:
        serving.listening()
        soft, hard = resource.prlimit(serving.pid, resource.RLIMIT_NOFILE)
        assert (soft, hard) == (400, 400)
        url = httpx.URL(serving.url)
        for number in range(500):
            address = (url.host, url.port or 0)
            source = (f"127.0.{number % 50}.1", 0)
            line = socket.create_connection(address, BOUND_SECONDS, source_address=source)
            after.enter_context(line)
        answer = serving.apply("opens", 100, BOUND_SECONDS)
        assert (answer.status, answer.json.get("result")) == (200, 100), answer.body
        assert serving.ask("GET", "/livez").status == 200


# -- settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"connection_limit": 5}, "greater than or equal to 16"),
        ({"connection_limit": 100, "address_limit": 101}, "more than HOLDFAST_CONNECTION_LIMIT"),
        ({"address_limit": 0}, "greater than or equal to 1"),
        ({"wait_limit": 0}, "greater than or equal to 1"),
        ({"trusted_proxies": "10.0.0.0/8,proxy.local"}, "'proxy.local' is no address or network"),
    ],
)
def test_a_wrong_setting_is_told(settings: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        load(**settings)


def test_a_trusted_network_may_be_written_by_one_of_its_addresses() -> None:
    assert load(trusted_proxies="10.1.2.3/8, ::1").trusted_proxies == ("10.1.2.3/8", "::1")
