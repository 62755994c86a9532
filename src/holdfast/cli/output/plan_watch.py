"""`holdfast plans watch`: a live view on a terminal, else a line for each change."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
import typer
from rich.live import Live

from holdfast.cli import options as opt
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output.plan_json import PLAN_KEYS, plan_view
from holdfast.cli.output.plan_view import frame, line
from holdfast.cli.output.printer import console, hint, iso_seconds, say
from holdfast.cli.process.live_workers import undriven_plan_warning
from holdfast.cli.session import Session, run
from holdfast.domain import names
from holdfast.domain.errors import PlanNotFound
from holdfast.domain.plain import plain_json
from holdfast.domain.plan.plan import SUSPENDED
from holdfast.engine.plans.handle import PlanInfo, info
from holdfast.ports import Topic
from holdfast.runtime.deadlines import sleep

LOOK_SECONDS = 1.0
WATCH_HELP = (
    f"JSON: a line for each change, each: {PLAN_KEYS}. "
    "Exit code 1: it waits for a person, as something has failed; 130: stopped by Ctrl-C."
)


def watch(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="A plan's id.")],
    json: opt.Json = False,
) -> int:
    """Follow a plan until it ends or waits for a person. Ctrl-C stops watching, not the plan."""
    id = names.check("plan", id)

    async def follow(session: Session) -> PlanInfo:
        if json:
            return await _as_lines(session, id, json=True)
        [plan] = await session.store.plans.load([id])
        if missing := await undriven_plan_warning(session, plan):
            hint(missing)
        return await (_live if sys.stdout.isatty() else _as_lines)(session, id)

    last = run(context, follow)
    return Exit.FAILED if last.status in SUSPENDED else Exit.OK


async def _live(session: Session, plan_id: str) -> PlanInfo:
    target = console()
    with Live(console=target, auto_refresh=False) as live:
        async for told in poll_plan(session, plan_id):
            live.update(frame(told, target.width), refresh=True)
    return told


async def _as_lines(session: Session, plan_id: str, *, json: bool = False) -> PlanInfo:
    before = ""
    async for told in poll_plan(session, plan_id):
        now = line(told)
        if now != before:
            _print(told, now, session.now, json=json)
        before = now
    return told


def _print(told: PlanInfo, now: str, at: float, *, json: bool) -> None:
    if json:
        print(plain_json(msgspec.json.encode(plan_view(told)).decode()))
    else:
        say(f"{iso_seconds(at)}  {now}")
    sys.stdout.flush()


async def poll_plan(session: Session, plan_id: str) -> AsyncIterator[PlanInfo]:
    """Yield the plan at most once a second, until it has ended or waits for a person."""
    store, clock = session.store, session.clock
    while True:
        ticket, looked_at = store.ticket(Topic.DUE), clock.steady()
        [plan] = await store.plans.load([plan_id])
        if plan is None:
            raise PlanNotFound(plan_id)
        yield info(plan, now=session.now)
        if plan.rests:
            return
        await store.wait(Topic.DUE, ticket, timeout=LOOK_SECONDS)
        left = LOOK_SECONDS - (clock.steady() - looked_at)
        if left > 0:
            await sleep(clock, left)
