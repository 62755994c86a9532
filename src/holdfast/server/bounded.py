"""uvicorn's httptools protocol, with the bounds that it lacks: how long a request's head may be and
what follows its body, how long a request may take to arrive, and how long its answer may lie
unread. Without them a few silent connections fill the service up."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.server.serve import (
    ARRIVE_SECONDS,
    HEAD_MAX_BYTES,
    STALLED_SECONDS,
    STALLED_STOPPING_SECONDS,
    TAKEN_MIN_BYTES,
)


class _TooLong(Exception):
    """Raised within the parser, which stops at it."""


class BoundedHttp(HttpToolsProtocol):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._named_bytes = 0  # of the address, the headers and the trailers of one request
        self._bare_bytes = 0  # since the last piece of a body, or the end of a head
        self._is_in_head = True
        self._is_stopping = False
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # All that lies unread counts: a little of it would hold a closed connection for ever.
        transport.set_write_buffer_limits(high=0)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_is_there()
        self._is_read()
        super().connection_lost(exc)

    # -- what comes

    def data_received(self, data: bytes) -> None:
        self._bare_bytes += len(data)
        super().data_received(data)
        if self._bare_bytes > HEAD_MAX_BYTES:
            self._refuse()

    def send_400_response(self, msg: str) -> None:
        """Instead of an answer that has begun there is none."""
        if self.transport.is_closing():
            return
        if not self._is_in_head:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def _refuse(self) -> None:
        self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        self._is_in_head, self._named_bytes = True, 0
        self._expect_request()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the head, or behind the body: uvicorn keeps both."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._named_bytes += size
        if self._named_bytes > HEAD_MAX_BYTES:
            self._refuse()
            raise _TooLong

    def on_headers_complete(self) -> None:
        self._is_in_head, self._bare_bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head, self._bare_bytes = True, 0
        self._request_is_there()
        super().on_message_complete()

    def _expect_request(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(ARRIVE_SECONDS, self._give_up)

    def _request_is_there(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        self.transport.close()

    # -- what goes

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def shutdown(self) -> None:
        self._is_stopping = True
        if self._stalled is not None:
            self._expect_reader()
        super().shutdown()

    def _expect_reader(self) -> None:
        self._is_read()
        wait = STALLED_STOPPING_SECONDS if self._is_stopping else STALLED_SECONDS
        left = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(wait, self._look_at_reader, left)

    def _is_read(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _look_at_reader(self, left: int) -> None:
        self._stalled = None
        if left - self.transport.get_write_buffer_size() >= TAKEN_MIN_BYTES:
            self._expect_reader()
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        """With what the system still keeps for the reader."""
        line = self.transport.get_extra_info("socket")
        if line is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
