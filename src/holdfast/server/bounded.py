"""uvicorn's httptools protocol, with the two bounds that it lacks: how long a request's head may
be, and how long a request may take to arrive. Without them a few silent connections fill the
service up."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.server.serve import ARRIVE_SECONDS, HEAD_MAX_BYTES


class BoundedHttp(HttpToolsProtocol):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_bytes = 0
        self._is_in_head = True
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_is_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        is_too_long = self._is_in_head and self._head_bytes > HEAD_MAX_BYTES
        if is_too_long and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._expect_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
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
