"""uvicorn's httptools protocol, with the bounds that it lacks: how long a request's head may be and
what follows its body, how long each part of a request may take to arrive, and how long its answer
may lie unread. Without them a few silent connections fill the service up."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from holdfast.server.http import problems
from holdfast.server.http.edge import HEADERS, REFUSAL, TARGET, ConnectionPlace
from holdfast.server.http.log_lines import LogLines
from holdfast.server.serve import (
    ARRIVE_SECONDS,
    FIRST_BYTE_SECONDS,
    HEAD_MAX_BYTES,
    HEAD_SECONDS,
    STALLED_SECONDS,
    STALLED_STOPPING_SECONDS,
    TAKEN_MIN_BYTES,
)

TOO_LONG = "the head of the request is too long"
OTHER_CODING = "the body is in a transfer coding other than chunked"
HEADER_BYTES = 32  # that each header counts for beside its name and value


class _Refused(Exception):
    """Raised within the parser, which stops at it."""


def _authority(target: bytes) -> bytes | None:
    """Return the host and port of ``http://host:port/path``; None: it has none, as ``*``."""
    _, scheme, rest = target.partition(b"://")
    return rest.partition(b"/")[0].partition(b"?")[0] if scheme else None


class BoundedHttp(HttpToolsProtocol):
    def __init__(
        self,
        *args: Any,
        place: ConnectionPlace,
        lines: LogLines,
        leaving: asyncio.Event,
        **options: Any,
    ) -> None:
        """Serve one connection; ``leaving`` is set when the service is about to stop."""
        super().__init__(*args, **options)
        self._place = place
        self._lines = lines
        self._leaving = leaving
        self._named_bytes = 0  # of the address, the headers and the trailers of one request
        self._bare_bytes = 0  # since the last piece of a body, or the end of a head
        self._is_in_head = True
        self._is_stopping = False
        self._waits_for: float | None = FIRST_BYTE_SECONDS  # for so long; None: for nothing
        self._armed: float | None = None  # the time that ``_late`` was set for
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._answered: RequestResponseCycle | None = None  # the request being answered
        self._refusal: str | None = None  # why a request was refused; nothing is read after it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # All that lies unread counts: a little of it would hold a closed connection for ever.
        transport.set_write_buffer_limits(high=0)
        self._place.hang_up = transport.abort
        if self._place.is_dropped:
            transport.abort()
        else:
            self._watch_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        self._place.leave()
        self._waits_for = None
        self._watch_arrival()
        self._is_read()
        self._notify_disconnected()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _notify_disconnected(self) -> None:
        """Let the request being answered know that the connection is gone: uvicorn tells only the
        request that came last, which may stand behind it."""
        self.pipeline.clear()
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    # -- what comes

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._bare_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._refuse("the request is no proper HTTP", error)
        except httptools.HttpParserUpgrade:
            self._note("asks for another protocol, and is answered in HTTP/1.1")
        if self._bare_bytes > HEAD_MAX_BYTES:
            self._refuse(TOO_LONG)
        if self._waits_for is None and not self._is_answering:
            self._waits_for = HEAD_SECONDS  # blank lines begin no request
        self._watch_arrival()

    def _refuse(self, reason: str, error: Exception | None = None) -> None:
        """Answer with a problem document, behind the answers to the requests that came before it;
        where its own answer has begun there is no other."""
        if self._refusal is not None or self.transport.is_closing():
            return
        self._note(reason, error)
        self._refusal, self._waits_for = reason, None
        broken = None if self._is_in_head else self.cycle
        if self._is_behind(broken):
            return
        if broken is not None and broken.response_started:
            self.transport.abort()
            return
        if broken is not None:
            broken.disconnected = True  # whoever reads its body reads no further
            broken.message_event.set()
        self._answer_refusal(reason)

    def _is_behind(self, broken: RequestResponseCycle | None) -> bool:
        """Tell whether an earlier request is not answered yet; the broken one is dropped then."""
        answered = self._answered
        if answered is None or answered.response_complete or answered is broken:
            return False
        if broken is not None:
            waiting = [one for one in self.pipeline if one[0] is not broken]
            self.pipeline.clear()
            self.pipeline.extend(waiting)
            self.cycle = waiting[0][0] if waiting else answered
        return True

    def _answer_refusal(self, reason: str) -> None:
        answer = problems.bad_request(reason)
        headers = [*self.server_state.default_headers, *answer.raw_headers, *HEADERS]
        lines = [b"%s: %s\r\n" % header for header in headers]
        close = b"connection: close\r\n\r\n"
        self.transport.write(b"".join([STATUS_LINE[400], *lines, close, bytes(answer.body)]))
        self.transport.close()

    def _note(self, reason: str, error: Exception | None = None) -> None:
        """Write down what came; the parser's errors have names of their own, and nothing of it."""
        host = self.client[0] if self.client else ""
        kind = type(error).__name__ if error is not None else "none"
        line = f"a request from %s: {reason} (error of the parser: %s)"
        self._lines.say(logging.WARNING, line, host, kind, of=host)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_message_begin(self) -> None:
        self._is_in_head, self._named_bytes = True, 0
        self._waits_for = HEAD_SECONDS
        super().on_message_begin()
        if self._place.refusal is not None:
            self.scope[REFUSAL] = self._place.refusal  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; what stands behind a body is counted too, and is no header."""
        self._count(len(name) + len(value) + HEADER_BYTES)
        if not self._is_in_head:
            return
        if name.lower() == b"transfer-encoding" and value.strip().lower() != b"chunked":
            self._refuse(OTHER_CODING)
            raise _Refused
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._named_bytes += size
        if self._named_bytes > HEAD_MAX_BYTES:
            self._refuse(TOO_LONG)
            raise _Refused

    def on_headers_complete(self) -> None:
        self._waits_for = ARRIVE_SECONDS
        if not self.url.startswith(b"/"):
            self.scope[TARGET] = _authority(self.url)  # type: ignore[literal-required]
        super().on_headers_complete()  # raises for a target that it cannot read
        self._is_in_head, self._bare_bytes = False, 0
        self._place.begin()
        is_reserved = self._place.refusal is not None
        if is_reserved or self._leaving.is_set() or self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head, self._bare_bytes = True, 0
        self._waits_for = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._refusal is not None and not self.pipeline and not self.transport.is_closing():
            self._answer_refusal(self._refusal)
        super().on_response_complete()
        if not self._is_answering:
            self._place.rest()

    def _watch_arrival(self) -> None:
        """Set the clock for what has not arrived yet, once for each part of a request."""
        if self._armed == self._waits_for:
            return
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._armed = self._waits_for
        if self._waits_for is not None:
            self._late = self.loop.call_later(self._waits_for, self._give_up)

    def _give_up(self) -> None:
        """Close the connection, unless the next request waits for the answer to the one before."""
        self._late = self._armed = None
        if self._is_in_head and self._is_answering:
            self._watch_arrival()
        else:
            self.transport.close()

    # -- what goes

    def close_after_answer(self) -> None:
        """Say in the answer that is under way, if one is, that its connection is closed then."""
        if self._is_answering:
            self.cycle.keep_alive = False

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
        self._stalled = self.loop.call_later(wait, self._check_reader, left)

    def _is_read(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _check_reader(self, left: int) -> None:
        self._stalled = None
        if left - self.transport.get_write_buffer_size() >= TAKEN_MIN_BYTES:
            self._expect_reader()
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        """Close the connection, together with what the system still keeps for the reader."""
        line = self.transport.get_extra_info("socket")
        if line is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
