"""Accept connections one by one, and refuse those above the bound before they cost anything.

The event loop's own server accepts as many at once as its backlog is long, each with an open file,
before the first of them can be refused.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from holdfast.server.http.edge import ConnectionPlace, Connections
from holdfast.server.http.log_lines import LogLines

ACCEPTED_AT_ONCE = 64  # then the others have their turn
REST_SECONDS = 0.2  # when the system has no file left for a connection


class Listener:
    """A listener for uvicorn's server, in place of the event loop's own servers."""

    def __init__(
        self,
        bound: socket.socket,
        connections: Connections,
        make: Callable[[ConnectionPlace], asyncio.Protocol],
        lines: LogLines,
    ) -> None:
        """Accept connections on ``bound``; ``make`` returns the protocol of one with a place."""
        self._bound = bound
        self._connections = connections
        self._make = make
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None
        self._beginning = set[asyncio.Task[None]]()
        self._is_closed = False

    def listen(self, backlog: int) -> None:
        self._bound.setblocking(False)
        self._bound.listen(backlog)
        self._loop.add_reader(self._bound.fileno(), self._accept)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._bound.fileno())

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                line, address = self._bound.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it has gone meanwhile
            except OSError as error:
                self._rest_a_while(error)
                return
            self._admit(line, str(address[0]))

    def _admit(self, line: socket.socket, host: str) -> None:
        place = self._connections.take(host)
        if place is None:
            line.close()
            return
        line.setblocking(False)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._begin(line, place))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, line: socket.socket, place: ConnectionPlace) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(place), line)
        except OSError:
            place.leave()
            line.close()

    def _rest_a_while(self, error: OSError) -> None:
        """Accept nothing for a while: the connection stays in the system's queue, and would be
        reported again at once."""
        kind = "cannot accept a connection, and will try again: %s"
        self._lines.say(logging.ERROR, kind, error.strerror or error)
        self._connections.make_room()
        self._loop.remove_reader(self._bound.fileno())
        self._rest = self._loop.call_later(REST_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._rest = None
        self._loop.add_reader(self._bound.fileno(), self._accept)
