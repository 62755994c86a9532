"""`watch` shows a plan or a bulk action live on a terminal, else a line for each change."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
from rich.console import RenderableType
from rich.live import Live

from holdfast.cli.output import redaction
from holdfast.cli.output.printer import console, iso_seconds, say
from holdfast.cli.session import Session
from holdfast.domain.plain import plain_json
from holdfast.domain.redaction import Redactor

POLL_SECONDS = 1.0

T = TypeVar("T")


async def follow(
    session: Session,
    states: AsyncIterator[T],
    *,
    view: Callable[[T, Redactor], Any],
    line: Callable[[T], str],
    frame: Callable[[T], RenderableType],
    json: bool,
) -> T:
    """Show each state, and return the last one.

    On a terminal, its ``frame`` replaces the frame before. Elsewhere its ``line`` is printed, or
    the JSON of its ``view``, if the line differs from the line before.
    """
    if sys.stdout.isatty() and not json:
        return await redraw(states, frame)
    before = ""
    async for state in states:
        text = line(state)
        if text != before and json:
            print(plain_json(msgspec.json.encode(view(state, redaction.current())).decode()))
        elif text != before:
            say(f"{iso_seconds(session.now)}  {text}")
        sys.stdout.flush()
        before = text
    return state


async def redraw(states: AsyncIterator[T], frame: Callable[[T], RenderableType]) -> T:
    with Live(console=console(), auto_refresh=False) as live:
        async for state in states:
            live.update(frame(state), refresh=True)
    return state
