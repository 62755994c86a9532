"""Those who wait for a result: for as long as they are there, and not too many at once."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from holdfast.server.auth import revocation
from holdfast.server.auth import tokens as tk
from tests.server.conftest import declared
from tests.support.server.listener import BOUND_SECONDS, Listening, listening
from tests.support.server.wire import APPLY, JSON, Told, ask, head, heard, kept
from verify.servers.poll import until

LONG = b'{"type": "mail.send", "payload": "ann", "waitSeconds": 120}'
PLACES = 3
HEALTH = ("/livez", "/readyz", "/metrics")
ALERTS = "/internal/alerts/events"


@pytest.fixture
def server() -> Iterator[Listening]:
    """Without a worker: a result never comes."""
    app = declared(wait_limit=PLACES, connection_limit=16, trusted_proxies="127.0.0.1")
    with listening(app, workers=0) as served:
        yield served


def wait_for_result(served: Listening, name: str = "admin", body: bytes = LONG) -> socket.socket:
    line = socket.create_connection((served.host, served.port), timeout=BOUND_SECONDS)
    sent = head(served, "POST", APPLY, JSON, f"content-length: {len(body)}") + body
    ours, theirs = served.tokens["admin"].encode(), served.tokens[name].encode()
    line.sendall(sent.replace(ours, theirs))
    return line


def until_waiting(served: Listening, count: int) -> None:
    until(
        lambda: served.service.long_requests.waits.taken == count,
        f"{count} wait",
        seconds=BOUND_SECONDS,
    )


def test_a_wait_ends_when_its_client_hangs_up(server: Listening) -> None:
    for round_of in range(1, 4):
        lines = [wait_for_result(server) for _ in range(PLACES)]
        until_waiting(server, PLACES)
        for line in lines:
            line.close()
        until_waiting(server, 0)
        assert kept(server) == PLACES * round_of, "what was accepted is kept"
    assert not server.app.waiters.awaited


def test_a_wait_that_nobody_is_left_for_is_counted_as_such(server: Listening) -> None:
    wait_for_result(server).close()
    counted = 'route="/api/workflows/apply",status="499"'
    until(lambda: counted in metrics(server), "it is counted", seconds=BOUND_SECONDS)


def metrics(served: Listening) -> str:
    return httpx.get(f"{served.url}/metrics", headers=served.bearer()).text


def test_a_wait_does_not_keep_the_body_of_its_request(server: Listening) -> None:
    size = 6_000_000
    padded, filled = LONG.ljust(size), LONG.replace(b"ann", b"a" * 900_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with ExitStack() as open_ones:
            for count, body in enumerate([padded, padded, filled], 1):
                open_ones.enter_context(wait_for_result(server, body=body))
                until_waiting(server, count)
            until(lambda: len(server.app.waiters.awaited) == PLACES, "all three wait")
            gc.collect()
            kept_bytes = tracemalloc.get_traced_memory()[0] - before
            assert kept_bytes < size, "no body is kept, and the payload only in the store"
    finally:
        tracemalloc.stop()


def test_one_token_cannot_take_all_places_to_wait_in(server: Listening) -> None:
    with ExitStack() as open_ones:
        for _ in range(PLACES):
            open_ones.enter_context(wait_for_result(server))
        until_waiting(server, PLACES)
        refused = ask(server, "POST", APPLY, LONG)
        assert (refused.status, refused.code) == (429, "too-many-waits-of-token")
        assert int(refused.headers["retry-after"]) >= 1
        assert kept(server) == PLACES, "who is refused has submitted nothing"
        assert ask(server, "POST", APPLY, LONG.replace(b"120", b"0")).status == 202
        open_ones.enter_context(wait_for_result(server, "operator"))
        until_waiting(server, PLACES + 1)


def test_all_tokens_together_leave_connections_to_others(server: Listening) -> None:
    with ExitStack() as open_ones:
        for name in ("operator", "of-t-1", "admin"):
            for _ in range(2 if name == "admin" else PLACES):
                open_ones.enter_context(wait_for_result(server, name))
        until_waiting(server, 8)
        refused = ask(server, "POST", APPLY, LONG)
        assert (refused.status, refused.code) == (503, "too-many-waits")


def test_health_is_answered_when_nothing_else_is(server: Listening) -> None:
    with ExitStack() as open_ones:
        client = open_ones.enter_context(httpx.Client(base_url=server.url, timeout=BOUND_SECONDS))
        for name in ["operator", "of-t-1"] * PLACES + ["admin"] * 2:
            open_ones.enter_context(wait_for_result(server, name))
        until_waiting(server, 8)
        for _ in range(8):
            stream: Any = client.stream("GET", ALERTS, headers=server.bearer())
            assert open_ones.enter_context(stream).status_code == 200
        refused = client.get("/api/tasks", headers=server.bearer())
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"]
        answers = {path: client.get(path, headers=server.bearer()) for path in HEALTH}
        assert {path: one.status_code for path, one in answers.items()} == dict.fromkeys(
            HEALTH, 200
        )
    until(lambda: ask(server, "GET", "/api/tasks").status == 200, "there is room again")


@pytest.mark.parametrize("is_kept", [False, True], ids=["revoked", "changed"])
def test_a_wait_ends_when_its_token_counts_no_more(
    server: Listening, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr(revocation, "POLL_SECONDS", 0.02)
    service = server.service
    with wait_for_result(server, "of-t-1") as line, wait_for_result(server, "admin"):
        until_waiting(server, 2)
        others = [one for one in service.admission.given if one.name != "of-t-1"]
        changed = [tk.make("of-t-1", tk.Role.VIEWER)[0]] if is_kept else []
        service.admission.given = tk.Tokens([*others, *changed])
        told = Told(heard(line))
        assert (told.status, told.code) == (401, "unauthenticated")
        assert service.long_requests.waits.taken == 1, "the other one waits on"


# -- bodies that arrive slowly


def send_slowly(served: Listening, size: int, name: str = "operator") -> socket.socket:
    """Send all but the last byte of a body."""
    line = socket.create_connection((served.host, served.port), timeout=BOUND_SECONDS)
    sent = head(served, "POST", APPLY, JSON, f"content-length: {size}") + b" " * (size - 1)
    ours, theirs = served.tokens["admin"].encode(), served.tokens[name].encode()
    line.sendall(sent.replace(ours, theirs))
    return line


def assert_few_arrive(served: Listening, arriving: Any, *, most: int, size: int) -> None:
    """Assert that one more body than the most that may arrive at once is refused."""
    with ExitStack() as open_ones:
        for _ in range(most):
            open_ones.enter_context(send_slowly(served, size))
        until(lambda: arriving.taken == most, f"{most} arrive", seconds=BOUND_SECONDS)
        refused = Told(heard(open_ones.enter_context(send_slowly(served, size))))
        assert (refused.status, refused.code) == (429, "too-many-requests")
        assert ask(served, "POST", APPLY, LONG.replace(b"120", b"0")).status == 202
    until(lambda: arriving.taken == 0, "all have gone", seconds=BOUND_SECONDS)


def test_slow_bodies_of_one_token_leave_connections_to_others(server: Listening) -> None:
    assert_few_arrive(server, server.service.arrivals.of_any, most=4, size=10)


def test_large_bodies_that_arrive_are_few(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    arriving = server.service.arrivals.of_large
    monkeypatch.setattr(arriving, "_of_token", 2)
    assert_few_arrive(server, arriving, most=2, size=600_000)


def test_a_large_body_has_its_place_until_the_request_is_carried_out(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only while it arrives: a store that is away keeps each of them in memory."""
    here, blocked = server.service.arrivals.of_large, asyncio.Event()
    monkeypatch.setattr(here, "_of_token", 1)
    submit = server.app.submit

    async def submit_late(*given: Any, **named: Any) -> Any:
        await blocked.wait()
        return await submit(*given, **named)

    monkeypatch.setattr(server.app, "submit", submit_late)
    large = LONG.replace(b"120", b"0").ljust(600_000)
    sent = head(server, "POST", APPLY, JSON, f"content-length: {len(large)}") + large
    with socket.create_connection((server.host, server.port), timeout=BOUND_SECONDS) as line:
        line.sendall(sent)
        arriving = server.service.arrivals.of_any
        until(lambda: here.taken == 1 and arriving.taken == 0, "it has arrived")
        refused = ask(server, "POST", APPLY, large)
        assert (refused.status, refused.code) == (429, "too-many-requests")
        server.loop.call_soon_threadsafe(blocked.set)
        assert Told(heard(line)).status == 202
    assert here.taken == 0
    assert ask(server, "POST", APPLY, large).status == 202


def test_a_large_body_gives_its_place_back_before_its_sender_waits(server: Listening) -> None:
    with wait_for_result(server, body=LONG.ljust(600_000)):
        until_waiting(server, 1)
        here = server.service.arrivals.of_large
        until(lambda: here.taken == 0, "its place is free", seconds=BOUND_SECONDS)
        assert server.service.long_requests.waits.taken == 1
