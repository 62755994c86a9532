"""Whatever is asked of a plan in whatever order, with drivers that die: it comes to rest, whole."""

import random
from typing import Any

import pytest

from holdfast import FailureCount, Status
from holdfast.domain.plan.plan import SLOTTED, PlanStatus
from holdfast.errors import IllegalTransition
from tests.support.runtime.plan_bench import Bench, Process

UNENDED = {Status.CREATED, Status.PENDING, Status.RUNNING, Status.RETRYING}
ASKS = ("pause", "resume", "cancel", "retry", "rollback")
SEEDS = 24


class Storm:
    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.chance = bench, random.Random(seed)
        self.tenants = [f"t{i}" for i in range(self.chance.randint(1, 6))]
        self.drivers: list[Process] = []

    def some(self, share: float) -> list[str]:
        return [tenant for tenant in self.tenants if self.chance.random() < share]

    def terms(self) -> dict[str, Any]:
        draw = self.chance.choice
        return {
            "conflict": draw(["wait", "skip"]),
            "max_concurrency": draw([None, 1, 2]),
            "on_halt": draw(["pause", "rollback", "rollback-plan"]),
            "halt_on": draw([None, FailureCount(0), FailureCount(1)]),
            "soak": draw([0, 3]),
            "waves": draw([("100%",), ("1", "100%")]),
        }

    async def begin(self) -> None:
        bench = self.bench
        await bench.start("worker", drives=False)
        await self.driver()
        bench.fails, bench.undo_fails = set(self.some(0.3)), set(self.some(0.15))
        bench.stand(*self.some(0.2))
        self.others = [await bench.other(tenant) for tenant in self.some(0.15)]
        self.plan = await bench.plan(*self.tenants, **self.terms())

    async def driver(self, *, dies: bool = True) -> None:
        process = await self.bench.start(f"driver{len(self.drivers)}", works=False)
        if dies and self.chance.random() < 0.5:
            process.dies_at = self.chance.randint(1, 60)
            process.dies_after = self.chance.random() < 0.5
        self.drivers.append(process)

    async def blow(self) -> None:
        await self.bench.clock.elapse(self.chance.choice([0.01, 0.05, 0.5, 3, 20]))
        last = self.drivers[-1]
        if last.dies_at is not None and last.driven >= last.dies_at:
            await self.driver()
        ask = self.chance.choice((*ASKS, "mend", "open"))
        if ask == "mend":
            self.mend()
        elif ask == "open":
            self.open()
        else:
            await self.ask(ask)

    async def ask(self, command: str) -> None:
        forced = {"force": self.chance.random() < 0.5} if command == "rollback" else {}
        try:
            await getattr(self.plan, command)(**forced)
        except IllegalTransition:
            return

    def mend(self) -> None:
        self.bench.fails, self.bench.undo_fails = set(), set()

    def open(self) -> None:
        for gate in self.bench.gates.values():
            gate.open()

    async def calm(self) -> None:
        self.mend()
        self.open()
        await self.driver(dies=False)
        await self.bench.clock.elapse(30)
        for other in self.others:  # those that failed hold their tenants' lines
            if (await other.info()).status is Status.FAILED:
                await other.discard()
        await self.bench.until_rests()
        await self.bench.clock.elapse(20)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_plan_comes_to_rest_after_any_storm(seed: int) -> None:
    async with Bench() as bench:
        storm = Storm(bench, seed)
        await storm.begin()
        for _ in range(storm.chance.randint(0, 10)):
            await storm.blow()
        await storm.calm()
        plan = bench.record
        assert plan.lease is None, bench.state()
        if plan.settled:
            assert not UNENDED & set(bench.statuses()), bench.state()
        if plan.status is not PlanStatus.PAUSED:
            assert plan.count(*SLOTTED) == 0, bench.state()
