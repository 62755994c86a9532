"""A round from its first fork to its verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import apsw

from holdfast.domain.task.events import Event
from holdfast.domain.task.task import Task
from holdfast.errors import StoreUnavailable
from holdfast.ports import Store
from verify.chaos import ledger, plan_round, trigger_round
from verify.chaos.crew import ChaosCrew, KillCounts
from verify.chaos.judges.plans import PlanHistory, PlanRecords, PlanVerdict, judge_plans
from verify.chaos.judges.tasks import History, TaskVerdict, judge
from verify.chaos.judges.triggers import TriggerHistory, TriggerVerdict, judge_triggers
from verify.chaos.records import all_plan_events, all_plans, all_tasks, all_triggers
from verify.chaos.round_plan import RoundPlan, Subject
from verify.chaos.server import Server
from verify.chaos.tasks import ENDS
from verify.chaos.wire import FaultyWire, is_done

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
        complaints = list(self.verdict.complaints) + tally.failed
        if not tally.settled:
            complaints.append(f"not all was settled after {plan.seconds:.0f} s")
        if tally.kills < plan.kills or tally.zombies < plan.zombies:
            complaints.append(f"only {tally.kills} kills, {tally.zombies} zombies in the time")
        if tally.server_kills < plan.server_kills or not is_done(plan, tally.wire):
            complaints.append(f"only {tally.server_kills} kills of the server, {dict(tally.wire)}")
        return [f"{plan.name} (seed {plan.seed}): {complaint}" for complaint in complaints]


def run_round(plan: RoundPlan) -> FinishedRound:
    began = time.monotonic()
    with ExitStack() as stack:
        server, line, version = None, None, f"SQLite {apsw.sqlite_lib_version()}"
        if plan.store == OWN_SERVER:
            chance = random.Random(f"{plan.seed} server")
            kept = plan.folder / "server"
            server = stack.enter_context(
                Server(kept, chance, durable=plan.durable, straight=plan.straight)
            )
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
    store = await _open_store(plan)
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


async def _open_store(plan: RoundPlan) -> Store:
    """Open the store; try again, because a machine that stood still looks like a silent server."""
    for _ in range(OPEN_TRIES - 1):
        with suppress(StoreUnavailable):
            return await plan.open_store()
    return await plan.open_store()


async def _history(store: Store, plan: RoundPlan) -> History:
    orders = plan.orders if plan.subject is Subject.TASKS else []
    return History(
        expected={order.key: ENDS[order.work.fate] for order in orders},
        records=await _records(store),
        lines=list(ledger.read(plan.folder)),
        findings=await store.admin.doctor(fix=False, limit=FINDINGS),
        lease_seconds=plan.lease_seconds,
    )


async def _trigger_history(store: Store, plan: RoundPlan) -> TriggerHistory:
    return TriggerHistory(
        names=[planned.name for planned in trigger_round.planned_triggers(plan)],
        triggers=await all_triggers(store),
        tasks=await all_tasks(store),
        lines=list(ledger.read(plan.folder)),
        findings=await store.admin.doctor(fix=False, limit=FINDINGS),
    )


async def _plan_history(store: Store, plan: RoundPlan) -> PlanHistory:
    plans: dict[str, PlanRecords] = {}
    for record in await all_plans(store):
        tasks = await store.plans.tasks(record.id)
        members = await store.plans.members(record.id)
        events = await all_plan_events(store, record.id)
        assert tasks is not None
        plans[record.id] = PlanRecords(plan=record, tasks=tasks, members=members, events=events)
    expected = {rollout.name: rollout.ends for rollout in plan_round.rollouts(plan)}
    return PlanHistory(expected=expected, plans=plans, beside=await _history(store, plan))


async def _records(store: Store) -> dict[str, tuple[Task, Sequence[Event]]]:
    """Load every task with its events."""
    details = [await store.views.detail(task.id) for task in await all_tasks(store)]
    return {detail.task.id: (detail.task, detail.events) for detail in details if detail}
