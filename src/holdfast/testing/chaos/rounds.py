"""A round from its first fork to its verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import apsw

from holdfast.domain.events import Event
from holdfast.domain.task import Task
from holdfast.ports import Filter
from holdfast.testing.chaos import ledger
from holdfast.testing.chaos.crew import Crew, Tally
from holdfast.testing.chaos.judge import History, Verdict, judge
from holdfast.testing.chaos.plan import Plan
from holdfast.testing.chaos.server import Server
from holdfast.testing.chaos.tasks import ENDS
from holdfast.testing.chaos.wire import Wire, is_done

PAGE = 500
OWN_SERVER = "redis"  # in place of a URL: a server of our own, which is killed too


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    plan: Plan
    tally: Tally
    verdict: Verdict
    seconds: float
    version: str  # "Redis 7.0.15"

    @property
    def complaints(self) -> list[str]:
        plan, tally = self.plan, self.tally
        said = list(self.verdict.complaints) + tally.failed
        if not tally.settled:
            said.append(f"not all was settled after {plan.seconds:.0f} s")
        if tally.kills < plan.kills or tally.zombies < plan.zombies:
            said.append(f"only {tally.kills} kills, {tally.zombies} zombies in the time")
        if tally.server_kills < plan.server_kills or not is_done(plan, tally.wire):
            said.append(f"only {tally.server_kills} kills of the server, {dict(tally.wire)}")
        return [f"{plan.name}: {one}" for one in said]


def run_round(plan: Plan) -> Round:
    began = time.monotonic()
    with ExitStack() as stack:
        server, line, version = None, None, f"SQLite {apsw.sqlite_lib_version()}"
        if plan.store == OWN_SERVER:
            chance = random.Random(f"{plan.seed} server")
            kept = plan.folder / "server"
            server = stack.enter_context(Server(kept, chance, durable=plan.durable))
            line = Wire(server.url)
            plan, version = replace(plan, store=server.url, proxied=line.url), server.version
        plan.preload()
        tally = Crew(plan, server=server, line=line).run()
        if server is not None:
            server.come_back(at_once=True)  # the time may have been up while it was away
        verdict = judge(asyncio.run(_history(plan)))
    seconds = time.monotonic() - began
    return Round(plan=plan, tally=tally, verdict=verdict, seconds=seconds, version=version)


async def _history(plan: Plan) -> History:
    store = await plan.open_store()
    try:
        records: dict[str, tuple[Task, Sequence[Event]]] = {}
        cursor = None
        while True:
            page = await store.find(Filter(), limit=PAGE, cursor=cursor)
            for task in page.tasks:
                detail = await store.detail(task.id)
                if detail is not None:
                    records[task.id] = detail.task, detail.events
            cursor = page.cursor
            if cursor is None:
                break
        findings = await store.doctor(fix=False, limit=1000)
    finally:
        await store.close()
    return History(
        expected={order.key: ENDS[order.work.fate] for order in plan.orders},
        records=records,
        lines=list(ledger.read(plan.folder)),
        findings=findings,
        lease_seconds=plan.lease_seconds,
    )
