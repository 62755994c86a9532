"""Server-sent events: what has happened, with ids to go on from, and signs of life in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi.responses import StreamingResponse

from holdfast.domain.errors import InvalidInput

BEAT_SECONDS = 15.0  # proxies close what is silent for longer
STREAM_SECONDS = 3600.0  # then it ends, and the client goes on with the last id
MEDIA_TYPE = "text/event-stream"

_EVENT = {
    "description": "Each event",
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": r"^\d+\.\d+$", "description": "To go on from"},
        "event": {"type": "string", "examples": ["StageCompleted", "progress", "end"]},
        "data": {"type": "string", "description": "A JSON object"},
        "retry": {"type": "integer"},
    },
}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of events",
        "content": {MEDIA_TYPE: {"schema": _EVENT}},
    }
}


class Position(msgspec.Struct, frozen=True, order=True):
    """Behind the so manyeth event of a version."""

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


def stream(source: AsyncIterator[bytes], stopping: asyncio.Event) -> StreamingResponse:
    return StreamingResponse(
        _beating(source, stopping), media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"}
    )


async def _beating(source: AsyncIterator[bytes], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Until the source, the service or its time has come to an end."""
    ends = asyncio.get_running_loop().time() + STREAM_SECONDS
    stop = asyncio.create_task(stopping.wait())
    following: asyncio.Task[bytes] | None = None
    try:
        yield b"retry: 1000\n\n"
        while not stopping.is_set() and asyncio.get_running_loop().time() < ends:
            following = following or asyncio.create_task(_next(source))
            await asyncio.wait(
                {following, stop}, timeout=BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not following.done():
                yield b": still here\n\n"
                continue
            done, following = following, None
            try:
                yield done.result()
            except StopAsyncIteration:
                return
    finally:
        stop.cancel()
        if following is not None:
            following.cancel()
        await asyncio.gather(*filter(None, (stop, following)), return_exceptions=True)
        await source.aclose()  # type: ignore[attr-defined]


async def _next(source: AsyncIterator[bytes]) -> bytes:
    return await anext(source)
