"""A round from its first fork to its verdict, and the table of all rounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from holdfast.domain.events import Event
from holdfast.domain.task import Task
from holdfast.ports import Filter
from holdfast.testing.chaos import ledger
from holdfast.testing.chaos.crew import Crew, Tally
from holdfast.testing.chaos.judge import History, Verdict, judge
from holdfast.testing.chaos.plan import Plan
from holdfast.testing.chaos.tasks import ENDS

PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    plan: Plan
    tally: Tally
    verdict: Verdict
    seconds: float

    @property
    def complaints(self) -> list[str]:
        said = list(self.verdict.complaints) + self.tally.failed
        if not self.tally.settled:
            said.append(f"not all was settled after {self.plan.seconds:.0f} s")
        if self.tally.kills < self.plan.kills or self.tally.zombies < self.plan.zombies:
            said.append(f"only {self.tally.kills} kills, {self.tally.zombies} zombies in the time")
        return [f"{self.plan.name}: {one}" for one in said]


def run_round(plan: Plan) -> Round:
    began = time.monotonic()
    tally = Crew(plan).run()
    verdict = judge(asyncio.run(_history(plan)))
    return Round(plan=plan, tally=tally, verdict=verdict, seconds=time.monotonic() - began)


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


def print_table(rounds: Sequence[Round]) -> None:
    table = Table(title="Chaos, and what the store and the ledger say of it")
    table.add_column("")
    for one in rounds:
        table.add_column(f"{one.plan.tenants} tenants", justify="right")
    for name, cell in ROWS.items():
        table.add_row(name, *(cell(one) for one in rounds))
    Console().print(table)


ROWS: dict[str, Callable[[Round], str]] = {
    "workers killed": lambda one: str(one.tally.kills),
    "zombies (frozen past their lease)": lambda one: str(one.tally.zombies),
    "submitters, operators killed": lambda one: (
        f"{one.tally.submitter_kills}, {one.tally.operator_kills}"
    ),
    "tasks": lambda one: str(one.verdict.tasks),
    "submits sent again": lambda one: str(one.verdict.repeated_submits),
    "stages committed": lambda one: str(one.verdict.stages),
    "undos committed": lambda one: str(one.verdict.undos),
    "retries": lambda one: str(one.verdict.retries),
    "suspended as poison, resumed": lambda one: str(one.verdict.poison),
    "take-overs (s after lease end)": lambda one: str(len(one.verdict.taken_over)),
    "  swept after, p50 / p99 / max s": lambda one: _spread(one.verdict.swept),
    "  resumed after, p50 / p99 / max s": lambda one: _spread(one.verdict.taken_over),
    "  late by L1, standstills aside": lambda one: str(one.verdict.late),
    "standstills (frozen in a write), s": lambda one: f"{one.verdict.stood_still_seconds:.1f}",
    "stale commits refused": lambda one: str(one.verdict.stale),
    "lost": lambda one: str(len(one.verdict.lost)),
    "double commits": lambda one: str(len(one.verdict.double)),
    "two owners": lambda one: str(len(one.verdict.two_owners)),
    "out of order": lambda one: str(len(one.verdict.disorder)),
    "doctor's findings": lambda one: str(len(one.verdict.doctor)),
    "seconds": lambda one: f"{one.seconds:.1f}",
}


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    picks = [values[int(share * (len(values) - 1))] for share in (0.5, 0.99, 1.0)]
    return " / ".join(f"{pick:.2f}" for pick in picks)
