"""Walks through all keys of a partition, in pages that do not block the server for long."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from holdfast.domain.errors import StoreError
from holdfast.stores.redis.keys import GROUP, TEMPLATES
from holdfast.stores.redis.partition import Partition

PAGE = 100
PAUSE_MAX_SECONDS = 5.0  # if this process was suspended, the page took very long

# The longest templates come first: index:tenant: before index:, ckpt:meta: before ckpt:,
# plan:ID:events before plan:ID.
_KINDS: Sequence[tuple[str, str, str, str]] = [
    (kind, *template.partition("{}"))
    for kind, template in sorted(TEMPLATES.items(), key=lambda item: -len(item[1]))
]
_SPECIAL = re.compile(r"([*?\[\]\\^])")

T = TypeVar("T")
Pace = Callable[[], Awaitable[None]]  # called after each page


async def at_once() -> None:
    """Do not pause between pages: a caller waits for the answer."""


def half_of_the_time(steady: Callable[[], float]) -> Pace:
    """Return a pace that pauses for as long as the page took, so that workers go first."""
    since = steady()

    async def pace() -> None:
        nonlocal since
        await asyncio.sleep(min(max(0.0, steady() - since), PAUSE_MAX_SECONDS))
        since = steady()

    return pace


def pages(names: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (names[start : start + size] for start in range(0, len(names), size))


async def names(part: Partition) -> AsyncIterator[Sequence[tuple[str, str]]]:
    """Yield pages of keys as pairs of kind and name part. A key may come twice."""
    prefix = f"{part.keys.prefix}:"
    pattern = escape_pattern(prefix) + "*"
    cursor = b"0"
    while True:
        scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE * 5)
        ((cursor, keys),) = await part.client.many(part.keys, [scan])
        yield [kind_of(name.decode(errors="replace")[len(prefix) :]) for name in keys]
        if cursor == b"0":
            return


def escape_pattern(text: str) -> str:
    """Return the pattern that matches this text and nothing else."""
    return _SPECIAL.sub(r"\\\1", text)


def kind_of(name: str) -> tuple[str, str]:
    for kind, beginning, slot, end in _KINDS:
        if slot and name.startswith(beginning) and name.endswith(end):
            return kind, name[len(beginning) : len(name) - len(end)]
        if name == beginning:
            return kind, ""
    return "", name


async def members(part: Partition, key: str, scan: str) -> AsyncIterator[Sequence[bytes]]:
    """Yield pages of a sorted set (ZSCAN) or a set (SSCAN); none if the key has another type."""
    cursor, step = b"0", 2 if scan == "ZSCAN" else 1
    while True:
        command = (scan, key, cursor, "COUNT", PAGE)
        (reply,) = await part.client.many(part.keys, [command])
        if isinstance(reply, Exception):
            return
        cursor, page = reply
        for start in range(0, len(page), PAGE * step):
            yield page[start : start + PAGE * step : step]
        if cursor == b"0":
            return


async def entries(part: Partition, stream: str) -> AsyncIterator[Sequence[bytes]]:
    start = "-"
    while True:
        command = ("XRANGE", stream, start, "+", "COUNT", PAGE)
        (page,) = await part.client.many(part.keys, [command])
        if isinstance(page, Exception) or not page:
            return
        yield [entry for entry, _ in page]
        start = f"({page[-1][0].decode()}"


async def pending(part: Partition, stream: str) -> AsyncIterator[Sequence[bytes]]:
    start = "-"
    while True:
        command = ("XPENDING", stream, GROUP, start, "+", PAGE)
        try:
            (page,) = await part.client.many(part.keys, [command])
        except StoreError:
            return  # no worker has read the stream yet
        if isinstance(page, Exception) or not page:
            return
        yield [entry for entry, *_ in page]
        start = f"({page[-1][0].decode()}"


async def tasks_of(part: Partition, stream: str, of: Sequence[bytes]) -> list[bytes]:
    """Return the task that each entry names; empty for an entry that is gone."""
    replies = await part.client.many(part.keys, [("XRANGE", stream, e, e) for e in of])
    return [_task_named(reply) for reply in replies]


def _task_named(reply: Any) -> bytes:
    if not isinstance(reply, list) or not reply:
        return b""
    fields: list[bytes] = reply[0][1] or []
    return dict(zip(fields[::2], fields[1::2], strict=True)).get(b"taskId", b"")
