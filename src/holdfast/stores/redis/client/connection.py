"""One connection on which calls are sent as they come, and answered in that order.

The driver makes the connection: TLS, login, database. From then on hiredis packs and reads, and
the driver's streams are not used, because they cost several times as much as a call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import hiredis
import redis
from redis.asyncio.connection import AbstractConnection

Command = Sequence[str | bytes | int | float]

CALLS_MAX = 10_000  # calls that wait for their answers
_NOTHING = object()


class _Call:
    __slots__ = ("commands", "ends_at", "future", "replies")

    def __init__(self, commands: int, future: asyncio.Future[list[Any]], ends_at: float) -> None:
        self.commands, self.future, self.ends_at = commands, future, ends_at
        self.replies: list[Any] = []


class PipelinedConnection(asyncio.Protocol):
    """A connection with several calls under way.

    It is ``usable`` until it is cut or a call on it was given up, whose answer may never come.
    """

    def __init__(self, connection: AbstractConnection, timeout_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_seconds = timeout_seconds
        self._reader = hiredis.Reader(
            protocolError=redis.InvalidResponse,
            replyError=connection._parser.parse_error,
            notEnoughData=_NOTHING,
        )
        self._calls: deque[_Call] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._writer, reader = connection._writer, connection._reader
        assert self._writer is not None
        assert reader is not None
        connection._writer = connection._reader = None  # so that the driver closes nothing
        self._transport = self._writer.transport  # the writer would close it if it were dropped
        self._transport.set_protocol(self)
        self.usable = not reader.at_eof()

    async def ask(self, commands: Sequence[Command], *, block_seconds: float = 0.0) -> list[Any]:
        """Send commands, and return the reply of each, or its error in its place.

        ``block_seconds`` is how long the server itself may wait before it answers.
        """
        if len(self._calls) >= CALLS_MAX:
            raise redis.TimeoutError(f"{CALLS_MAX} calls wait for their answers already")
        packed = b"".join([_pack(command) for command in commands])
        while not self._room.is_set():
            await self._room.wait()
        if self._transport.is_closing():
            raise redis.ConnectionError("the connection was closed")
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        patience = self._timeout_seconds + block_seconds
        self._calls.append(_Call(len(commands), future, self._loop.time() + patience))
        self._transport.write(packed)
        if self._timer is None:
            self._timer = self._loop.call_later(patience, self._check_oldest_call)
        try:
            return await future
        except asyncio.CancelledError:
            self.retire()
            raise

    def retire(self) -> None:
        """Take no new calls, and close as soon as those under way are answered."""
        self.usable = False
        if all(call.future.done() for call in self._calls):
            self.close()

    def close(self) -> None:
        self.usable = False
        self._transport.close()

    def _check_oldest_call(self) -> None:
        """Fail all calls if the oldest one has waited for too long."""
        self._timer = None
        if not self._calls:
            return
        left = self._calls[0].ends_at - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_oldest_call)
        else:
            self._fail(redis.TimeoutError("Timeout reading from the server"))
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        self.usable = False
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(error)

    # -- called by the event loop

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NOTHING:
                self._hear(reply)
        except redis.RedisError as error:
            self._fail(error)
            self._transport.abort()

    def _hear(self, reply: Any) -> None:
        if not self._calls:
            raise redis.InvalidResponse("the server answered a question that was not asked")
        call = self._calls[0]
        call.replies.append(reply)
        if len(call.replies) < call.commands:
            return
        self._calls.popleft()
        if not call.future.done():
            refused = [r for r in call.replies if isinstance(r, redis.ConnectionError)]
            if refused:  # it is starting, or does not let us in
                call.future.set_exception(refused[0])
            else:
                call.future.set_result(call.replies)
        if not self.usable and not self._calls:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._room.set()
        self._fail(redis.ConnectionError(str(exc) if exc else "Connection closed by server."))

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()


def _pack(command: Command) -> bytes:
    try:
        packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
        return packed
    except TypeError as error:
        raise redis.DataError(str(error)) from error
