"""Answers that nobody reads: they are not waited for, and who does read gets all."""

import asyncio
import logging
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvloop

from holdfast.server import serve
from holdfast.server.http import protocol
from tests.server.conftest import declared
from tests.support.server.listener import Listening, listening
from verify.servers.poll import until

BOUND_SECONDS = 60.0
SOME = serve.TAKEN_MIN_BYTES
MANY = 200  # more than the system keeps by itself, however large it lets its buffers grow


@pytest.fixture
def server() -> Iterator[Listening]:
    with listening(declared(), workers=0) as served:
        yield served


@contextmanager
def stalled(
    served: Listening, *, asked: int = MANY, takes_bytes: int = 4096
) -> Iterator[socket.socket]:
    """Asks for much, and reads nothing of it."""
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, takes_bytes)
        line.settimeout(BOUND_SECONDS)
        line.connect((served.host, served.port))
        line.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: here\r\n\r\n" * asked)
        yield line


def hung_up(line: socket.socket, seconds: float) -> bool:
    """Seen without reading."""
    poll = select.poll()
    poll.register(line, select.POLLERR | select.POLLHUP)
    return bool(poll.poll(1000 * seconds))


def test_who_does_not_read_is_not_waited_for(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "STALLED_SECONDS", 0.2)
    with stalled(server) as line:
        assert hung_up(line, seconds=BOUND_SECONDS)


class Answering:
    """The connection that answers, whose looks at its reader are taken by hand: how long it is
    between two of them is up to the machine."""

    def __init__(self, served: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
        self._served, self._made = served, list[protocol.BoundedHttp]()
        real = protocol.BoundedHttp.connection_made

        def made(one: protocol.BoundedHttp, transport: asyncio.Transport) -> None:
            self._made.append(one)
            line = transport.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOME)  # an answer goes in parts
            real(one, transport)

        monkeypatch.setattr(protocol.BoundedHttp, "connection_made", made)
        monkeypatch.setattr(protocol, "STALLED_SECONDS", 600.0)

    def until_it_waits(self) -> None:
        until(lambda: self._made and self._made[0]._stalled, "it waits for its reader")

    def look_if_some_was_taken(self) -> bool:
        async def look() -> bool:
            [one] = self._made
            due = one._stalled
            if due is None or due._args[0] - one.transport.get_write_buffer_size() < SOME:
                return False
            due._run()
            due.cancel()
            return True

        looked: bool = self._served.do(look)
        return looked


def test_who_reads_gets_all_however_often_that_is_looked_at(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering, asked, looks = Answering(server, monkeypatch), 20, 0
    with stalled(server, asked=asked, takes_bytes=128 * 1024) as line:
        answering.until_it_waits()
        head, _, body = line.recv(65536).partition(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        left = asked * (len(head) + 4 + length) - len(head) - 4 - len(body)
        while left:
            part = line.recv(65536)
            assert part, f"it has hung up {left} bytes before the end"
            left -= len(part)
            looks += answering.look_if_some_was_taken()
    assert looks > 10


def test_who_does_not_read_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(protocol, "STALLED_STOPPING_SECONDS", 0.1)
    monkeypatch.setattr(serve, "FINISH_SECONDS", 40)  # the bound that it must not come to
    with ExitStack() as after:
        with listening(declared(), workers=0) as served:
            line = after.enter_context(stalled(served))
            assert not hung_up(line, seconds=0.5), "it has time while the service runs"
        assert hung_up(line, seconds=BOUND_SECONDS)
    errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert errors == []


def test_who_hangs_up_with_answers_under_way_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop raises at a write to a closed connection, where asyncio only warns."""
    with listening(declared(), workers=0, loop_factory=uvloop.new_event_loop) as served:
        answering = Answering(served, monkeypatch)
        with stalled(served):
            answering.until_it_waits()
        places = served.service.connections
        until(lambda: not places.taken, "it has hung up", seconds=BOUND_SECONDS)
    errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert errors == []
