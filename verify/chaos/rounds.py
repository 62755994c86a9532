"""A round from its first fork to its verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import apsw

from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.task.events import Event
from holdfast.domain.task.task import Task
from holdfast.errors import StoreUnavailable
from holdfast.ports import Filter, Store
from verify.chaos import ledger, plan_round, trigger_round
from verify.chaos.crew import ChaosCrew, KillCounts
from verify.chaos.judges.plans import PlanHistory, PlanRecords, PlanVerdict, judge_plans
from verify.chaos.judges.tasks import History, TaskVerdict, judge
from verify.chaos.judges.triggers import TriggerHistory, TriggerVerdict, judge_triggers
from verify.chaos.round_plan import RoundPlan, Subject
from verify.chaos.server import Server
from verify.chaos.tasks import ENDS
from verify.chaos.wire import FaultyWire, is_done

PAGE = 500
FINDINGS = 1000
OPEN_TRIES = 10
OWN_SERVER = "redis"  # in place of a URL: a server of our own, which is killed too

AnyVerdict = TaskVerdict | TriggerVerdict | PlanVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRound:
    plan: RoundPlan
    tally: KillCounts
    verdict: AnyVerdict
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
        return [f"{plan.name} (seed {plan.seed}): {one}" for one in said]


def run_round(plan: RoundPlan) -> FinishedRound:
    began = time.monotonic()
    with ExitStack() as stack:
        server, line, version = None, None, f"SQLite {apsw.sqlite_lib_version()}"
        if plan.store == OWN_SERVER:
            chance = random.Random(f"{plan.seed} server")
            kept = plan.folder / "server"
            server = stack.enter_context(Server(kept, chance, durable=plan.durable))
            line = FaultyWire(server.url)
            plan, version = replace(plan, store=server.url, proxied=line.url), server.version
        plan.preload()
        tally = ChaosCrew(plan, server=server, line=line).run()
        judged = plan
        if server is not None:
            server.come_back(at_once=True)  # the time may have been up while it was away
            judged = replace(plan, store=server.patient_url)
        verdict = asyncio.run(_verdict(judged))
    seconds = time.monotonic() - began
    return FinishedRound(plan=plan, tally=tally, verdict=verdict, seconds=seconds, version=version)


async def _verdict(plan: RoundPlan) -> AnyVerdict:
    store = await _opened(plan)
    try:
        match plan.subject:
            case Subject.TASKS:
                return judge(await _history(store, plan))
            case Subject.TRIGGERS:
                return judge_triggers(await _trigger_history(store, plan))
            case Subject.PLANS:
                return judge_plans(await _plan_history(store, plan))
    finally:
        await store.close()


async def _opened(plan: RoundPlan) -> Store:
    """Open the store again where a process that stood still took that for the server's silence."""
    for _ in range(OPEN_TRIES - 1):
        with suppress(StoreUnavailable):
            return await plan.open_store()
    return await plan.open_store()


async def _history(store: Store, plan: RoundPlan) -> History:
    orders = plan.orders if plan.subject is Subject.TASKS else []
    return History(
        expected={order.key: ENDS[order.work.fate] for order in orders},
        records={task.id: told async for task, told in _tasks_with_events(store)},
        lines=list(ledger.read(plan.folder)),
        findings=await store.admin.doctor(fix=False, limit=FINDINGS),
        lease_seconds=plan.lease_seconds,
    )


async def _trigger_history(store: Store, plan: RoundPlan) -> TriggerHistory:
    return TriggerHistory(
        names=[one.name for one in trigger_round.wanted(plan)],
        triggers=await trigger_round.all_triggers(store),
        tasks=[task async for task in _tasks(store)],
        lines=list(ledger.read(plan.folder)),
        findings=await store.admin.doctor(fix=False, limit=FINDINGS),
    )


async def _plan_history(store: Store, plan: RoundPlan) -> PlanHistory:
    plans: dict[str, PlanRecords] = {}
    for one in await plan_round.all_plans(store):
        tasks = await store.plans.tasks(one.id)
        members = await store.plans.members(one.id)
        events = await _plan_events(store, one.id)
        assert tasks is not None
        plans[one.id] = PlanRecords(plan=one, tasks=tasks, members=members, events=events)
    expected = {one.name: one.ends for one in plan_round.rollouts(plan)}
    return PlanHistory(expected=expected, plans=plans, beside=await _history(store, plan))


async def _plan_events(store: Store, plan_id: str) -> list[PlanEvent]:
    found: list[PlanEvent] = []
    while True:
        after = found[-1].version if found else 0
        page = await store.plans.events(plan_id, limit=PAGE, after_version=after)
        if not page:
            return found
        found += page


async def _tasks(store: Store) -> AsyncIterator[Task]:
    cursor = None
    while True:
        page = await store.views.find(Filter(), limit=PAGE, cursor=cursor)
        for task in page.tasks:
            yield task
        cursor = page.cursor
        if cursor is None:
            return


async def _tasks_with_events(
    store: Store,
) -> AsyncIterator[tuple[Task, tuple[Task, Sequence[Event]]]]:
    async for task in _tasks(store):
        detail = await store.views.detail(task.id)
        if detail is not None:
            yield task, (detail.task, detail.events)
