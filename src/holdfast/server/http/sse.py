"""Server-sent events: what has happened, with ids to go on from, and signs of life in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import msgspec
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.domain.errors import InvalidInput
from holdfast.runtime.cancellation import cancel_and_wait

BEAT_SECONDS = 15.0  # proxies close what is silent for longer
STREAM_SECONDS = 3600.0  # then it ends, and the client goes on with the last id
MEDIA_TYPE = "text/event-stream"

_EVENT = {
    "description": "One event of the stream",
    "type": "object",
    "properties": {
        "id": {
            "type": "string",
            "pattern": r"^\d+\.\d+$",
            "description": "The position to send as Last-Event-ID",
        },
        "event": {"type": "string", "examples": ["StageCompleted", "progress", "end"]},
        "data": {"type": "string", "description": "A JSON object"},
        "retry": {"type": "integer"},
    },
}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "A stream of events", "content": {MEDIA_TYPE: {"schema": _EVENT}}}
}


class Position(msgspec.Struct, frozen=True, order=True):
    """A position in a stream: the number of an event among those of one version."""

    version: int = 0
    index: int = 0

    def __str__(self) -> str:
        return f"{self.version}.{self.index}"


def position(text: str | None) -> Position:
    if not text:
        return Position()
    version, _, index = text.partition(".")
    if not _is_number(version) or not _is_number(index or "0"):
        raise InvalidInput(f"the last event id {text!r} is none of ours: VERSION.INDEX")
    return Position(int(version), int(index or "0"))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def event(name: str, data: Any, at: Position | None = None) -> bytes:
    head = f"id: {at}\n" if at is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


class Stream(StreamingResponse):
    """A response of server-sent events. It calls ``on_end`` once, before the reader can know that
    nothing more comes, or when the reader has gone."""

    def __init__(self, parts: AsyncGenerator[bytes, None], on_end: Callable[[], None]) -> None:
        self._parts = self._until_end(parts)
        super().__init__(self._parts, media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"})
        self._on_end: Callable[[], None] | None = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()
            await self._parts.aclose()

    async def _until_end(self, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        try:
            async for part in parts:
                yield part
        finally:
            self._end()
            await parts.aclose()

    def _end(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()


async def beating(
    source: AsyncIterator[bytes],
    stopping: asyncio.Event,
    revoked: asyncio.Event,
    is_welcome: Callable[[], bool],
) -> AsyncGenerator[bytes, None]:
    """Yield the parts of the source, with signs of life in between, until the source, the service,
    the time of the stream or the reader's right to read has come to an end."""
    ends = asyncio.get_running_loop().time() + STREAM_SECONDS
    stop, end = (asyncio.create_task(event.wait()) for event in (stopping, revoked))
    following: asyncio.Task[bytes] | None = None
    try:
        yield b"retry: 1000\n\n"
        while not stopping.is_set() and asyncio.get_running_loop().time() < ends:
            following = following or asyncio.create_task(_next(source))
            await asyncio.wait(
                {following, stop, end}, timeout=BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if end.done() or not is_welcome():
                return
            if not following.done():
                yield b": still here\n\n"
                continue
            done, following = following, None
            try:
                yield done.result()
            except StopAsyncIteration:
                return
    finally:
        # Beside: who has gone is cancelled anew at every await.
        ending = asyncio.create_task(_close(source, stop, end, following))
        _ENDING.add(ending)
        ending.add_done_callback(_ENDING.discard)
        await asyncio.shield(ending)


_ENDING = set[asyncio.Task[None]]()  # the loop itself would forget them


async def _close(source: AsyncIterator[bytes], *tasks: asyncio.Task[Any] | None) -> None:
    await cancel_and_wait(*tasks)
    await source.aclose()  # type: ignore[attr-defined]


async def _next(source: AsyncIterator[bytes]) -> bytes:
    return await anext(source)
