"""Plans on the memory store: processes of their own, whose calls can be watched, held or cut."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from holdfast import Context, Handle, Holdfast, Retry, Status
from holdfast.domain.errors import PartlyUnavailable
from holdfast.domain.plan import events as plan_events
from holdfast.domain.plan.plan import SLOTTED, Plan, PlanApplied, PlanChange, PlanStatus
from holdfast.domain.task.events import name_of
from holdfast.engine.plans.create import Planned
from holdfast.engine.plans.handle import PlanHandle, PlanInfo
from holdfast.errors import StoreUnavailable
from holdfast.ports import DuePlans, Store
from holdfast.runtime.worker.worker import Worker
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.doctor import examine
from holdfast.testing import ManualClock
from tests.support.runtime.helpers import Gate, short
from verify.interception import InterceptedStore, Verb

LEASE_SECONDS = 6.0
LONG_SECONDS = 600.0
RUNS = (Status.PENDING, Status.RUNNING, Status.RETRYING)
DRIVES = frozenset(  # what a driver asks of a store, and nobody else who runs no tasks
    {
        "plans.renew",
        "plans.apply",
        "plans.load",
        "plans.tasks",
        "plans.members",
        "load",
        "peek",
        "tenants",
        "apply",
    }
)


class Process(InterceptedStore):
    """One process's way to the store."""

    def __init__(self, bench: "Bench", name: str, *, drives: bool) -> None:
        self.bench, self.name, self.drives = bench, name, drives
        self.worker: Worker | None = None
        self.calls: list[str] = []
        self.down: set[str] = set()
        self.dies_at: int | None = None  # the number of the driver's call
        self.dies_after = False  # when it has been carried out
        self.held: dict[str, Gate] = {}  # calls that wait, by their verbs
        self.held_after: dict[str, Gate] = {}  # when they have been carried out
        self.applied: list[Plan] = []
        self.away: set[str] = set()  # ids of tasks whose part of the store does not answer
        super().__init__(bench.store, self._verb)

    def _verb(self, name: str, call: Verb) -> Verb:
        own: dict[str, Verb] = {
            "views.load": self._load,
            "views.peek": self._peek,
            "plans.claim": self._claim_plans,
            "plans.apply": self._apply_to_plan,
        }
        if name.startswith("triggers."):
            return call
        return own.get(name) or self.passed(short(name), call)

    def passed(self, verb: str, call: Verb) -> Verb:
        async def passed(*arguments: Any, **options: Any) -> Any:
            self.calls.append(verb)
            dies = verb in DRIVES and self.driven == self.dies_at
            if dies and not self.dies_after:
                await self.die()
            if verb in self.down or "*" in self.down:
                raise StoreUnavailable(f"{verb}: nobody answers")
            if gate := self.held.pop(verb, None):
                await gate.stand()
            answer = await call(*arguments, **options)
            self.bench.check()
            if dies:
                await self.die()
            if gate := self.held_after.pop(verb, None):
                await gate.stand()
            return answer

        return passed

    async def _load(self, ids: Sequence[str]) -> Any:
        found = await self.passed("load", self.bench.store.views.load)(ids)
        return self._parted(ids, found)

    async def _peek(self, ids: Sequence[str]) -> Any:
        found = await self.passed("peek", self.bench.store.views.peek)(ids)
        return self._parted(ids, found)

    async def _claim_plans(self, owner: str, *, limit: int, lease_seconds: float) -> Any:
        if not self.drives:
            return DuePlans(plans=(), next_seconds=None)
        call = self.passed("plans.claim", self.bench.store.plans.claim)
        return await call(owner, limit=limit, lease_seconds=lease_seconds)

    async def _apply_to_plan(self, change: PlanChange, **options: Any) -> Any:
        call = self.passed("plans.apply", self.bench.store.plans.apply)
        outcome = await call(change, **options)
        if isinstance(outcome, PlanApplied):
            self.applied.append(outcome.plan)
        return outcome

    def _parted(self, ids: Sequence[str], found: Sequence[Any]) -> Sequence[Any]:
        if not self.away & set(ids):
            return found
        error = StoreUnavailable("a part is away")
        answers = [error if i in self.away else one for i, one in zip(ids, found, strict=True)]
        raise PartlyUnavailable(error, answers)

    @property
    def driven(self) -> int:
        return sum(verb in DRIVES for verb in self.calls)

    async def die(self) -> None:
        assert self.worker is not None
        self.worker.abandon()
        await asyncio.get_running_loop().create_future()


class Bench:
    """A workflow of two stages and their undos over tenants; what it did is written down."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.processes: list[Process] = []
        self.ran: list[str] = []
        self.undone: list[str] = []
        self.running: set[str] = set()
        self.most_running = 0
        self.fails: set[str] = set()
        self.undo_fails: set[str] = set()
        self.gates: dict[str, Gate] = {}  # by tenant, in the first stage
        self.watched: dict[str, int] = {}  # plans: the most slots that they may have
        self.by_hand: set[str] = set()  # tenants whose tasks a person sets going
        self.faults: list[str] = []
        self.app, self.flow = self._app(self.store)
        self._opened = self.app.__aenter__()

    async def __aenter__(self) -> "Bench":
        await self._opened
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            if process.worker is not None:
                process.worker.abandon()
        await asyncio.sleep(0)
        assert self.faults == []
        assert examine(self.store.state) == []

    def _app(self, store: Store, name: str = "test") -> tuple[Holdfast, Any]:
        chance = random.Random(name)
        app = Holdfast(store, clock=self.clock, chance=chance, lease=LEASE_SECONDS)
        flow = app.workflow("upgrade", payload=str, retry=Retry(max=1))

        @flow.stage
        async def prepare(ctx: Context, tenant: str) -> None:
            self.ran.append(tenant)
            self.running.add(ctx.task_id)
            self.most_running = max(self.most_running, len(self.running))
            try:
                if gate := self.gates.get(tenant):
                    await gate.stand()
                else:
                    await asyncio.sleep(0)
                if tenant in self.fails:
                    raise ValueError(tenant)
            finally:
                self.running.discard(ctx.task_id)

        @flow.stage
        async def finish(ctx: Context, tenant: str) -> None: ...

        @prepare.undo
        async def undo(ctx: Context, tenant: str) -> None:
            if tenant in self.undo_fails:
                raise ValueError(f"undo {tenant}")
            self.undone.append(tenant)

        return app, flow

    # -- processes

    async def start(self, name: str, *, drives: bool = True, works: bool = True) -> Process:
        process = Process(self, name, drives=drives)
        app, _ = self._app(process, name)
        await app.__aenter__()
        queues = ("default",) if works else ("elsewhere",)
        process.worker = app.worker(name=name, queues=queues, heartbeat_thread=False)
        self.processes.append(process)
        await process.worker.start()
        return process

    # -- plans

    def on(self, *tenants: str) -> list[Planned]:
        return [self.flow.on(tenant, tenant=tenant) for tenant in tenants]

    async def plan(self, *tenants: str, **terms: Any) -> PlanHandle:
        handle: PlanHandle = await self.app.plan("p", self.on(*tenants), **terms)
        self.watched["p"] = terms.get("max_concurrency") or len(tenants)
        return handle

    async def other(self, tenant: str) -> Handle[Any]:
        """Work of the tenant that is no plan's."""
        handle: Handle[Any] = await self.flow.submit(tenant, tenant=tenant)
        return handle

    def check(self) -> None:
        """Never more slots than the plan may have, in its book or in fact."""
        for plan_id, most in self.watched.items():
            shelf = self.store.plans._state.plans[plan_id]
            slots = {i for i, member in shelf.members.items() if member.state in SLOTTED}
            tasks = [self.store.state.tasks.get(task_id) for task_id in shelf.tasks.ids]
            going = {i for i, task in enumerate(tasks) if task and task.status in RUNS}
            going -= {shelf.tasks.tenants.index(tenant) for tenant in self.by_hand}
            if len(slots) > most or len(going) > most:
                self.faults.append(f"too many: {sorted(slots)} have slots, {sorted(going)} go")
            if not going <= slots:
                self.faults.append(f"{sorted(going - slots)} were let go without a slot")

    async def until(self, is_so: Callable[[], bool], *, most_seconds: float = LONG_SECONDS) -> None:
        end = self.clock.steady() + most_seconds
        while not is_so():
            assert self.clock.steady() < end, self.state()
            await self.clock.elapse(0.5)

    async def reached(self, gate: Gate) -> None:
        await self.until(gate.reached.is_set)

    async def until_rests(self, **options: Any) -> PlanStatus:
        await self.until(lambda: self.record.is_stopped, **options)
        return self.record.status

    async def info(self) -> PlanInfo:
        return await self.app.plan.get("p").info()

    @property
    def record(self) -> Plan:
        return self.store.plans._state.plans["p"].plan

    def state(self) -> str:
        shelf = self.store.plans._state.plans["p"]
        return f"{shelf.plan}, {shelf.members}, due {shelf.due}"

    def statuses(self) -> list[Status]:
        return [
            self.store.state.tasks[i].status for i in self.store.plans._state.plans["p"].tasks.ids
        ]

    def task_id(self, tenant: str) -> str:
        tasks = self.store.plans._state.plans["p"].tasks
        return tasks.ids[tasks.tenants.index(tenant)]

    def told(self) -> list[str]:
        return [plan_events.name_of(event) for event in self.store.plans._state.plans["p"].events]

    def heard(self, tenant: str) -> Counter[str]:
        """The names of the task's events."""
        events = self.store.state.bodies[self.task_id(tenant)].events
        return Counter(name_of(event) for _, event in events)

    def stand(self, *tenants: str) -> Sequence[Gate]:
        """Make the tasks of these tenants wait in the first stage."""
        self.gates |= {tenant: Gate() for tenant in tenants}
        return [self.gates[tenant] for tenant in tenants]
