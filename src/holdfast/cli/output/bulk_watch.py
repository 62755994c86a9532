"""`holdfast bulk watch` prints a line for each change; on a terminal it rewrites the same line."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
import typer
from rich.live import Live
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output.bulk_view import BULK_KEYS, WRONG, bulk_view, line
from holdfast.cli.output.printer import console, iso_seconds, say
from holdfast.cli.output.progress import Estimate
from holdfast.cli.session import Session, run
from holdfast.domain.plain import plain_json, plain_line
from holdfast.domain.task.state import SUSPENDED
from holdfast.engine.bulk.order import BulkInfo
from holdfast.runtime.deadlines import sleep

POLL_SECONDS = 1.0
WATCH_HELP = (
    f"JSON: a line for each change, each: {BULK_KEYS}. "
    "Exit code 1: it was halted or is suspended; 130: stopped by Ctrl-C."
)


def watch(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="A bulk action's id.")],
    json: opt.Json = False,
) -> int:
    """Follow a bulk action until it ends or waits for a person. Ctrl-C stops watching, not the
    action.
    """

    async def follow(session: Session) -> BulkInfo:
        live = sys.stdout.isatty() and not json
        return await (_live(session, id) if live else _as_lines(session, id, json=json))

    return Exit.FAILED if run(context, follow).phase in WRONG else Exit.OK


async def _live(session: Session, bulk_id: str) -> BulkInfo:
    estimate = Estimate()
    with Live(console=console(), auto_refresh=False) as live:
        async for told in poll_bulk(session, bulk_id):
            shown = "  ".join(filter(None, (line(told), _estimated(told, estimate, session.now))))
            live.update(Text(plain_line(shown)), refresh=True)
    return told


def _estimated(told: BulkInfo, estimate: Estimate, now: float) -> str:
    """Say how much of it is done, and how long the rest will take at this rate."""
    through = told.matching - told.left
    if told.over or told.matching <= 0 or through < 0:
        return ""
    left = estimate.left(now, through, told.left)
    return ", ".join(filter(None, (f"{100 * through // told.matching} %", left)))


async def _as_lines(session: Session, bulk_id: str, *, json: bool) -> BulkInfo:
    before = ""
    async for told in poll_bulk(session, bulk_id):
        now = line(told)
        if now != before and json:
            print(plain_json(msgspec.json.encode(bulk_view(told)).decode()))
        elif now != before:
            say(f"{iso_seconds(session.now)}  {now}")
        before = now
        sys.stdout.flush()
    return told


async def poll_bulk(session: Session, bulk_id: str) -> AsyncIterator[BulkInfo]:
    """Yield the state every second, until the action has ended or waits for a person."""
    handle = await session.app.bulk.get(bulk_id)
    while True:
        told = await handle.info()
        yield told
        if told.over or told.status in SUSPENDED:
            return
        await sleep(session.clock, POLL_SECONDS)
