"""A store whose every move a test makes itself, on a clock that it moves."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from holdfast import Context, Holdfast
from holdfast.domain.plan import rollout
from holdfast.domain.plan.plan import Member, MemberState, Plan, PlanApplied
from holdfast.domain.plan.rollout import PlanObservation
from holdfast.domain.task import decide
from holdfast.domain.task.checkpoint import Policy
from holdfast.domain.task.decide import Done, Failed
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, FailureKind, Task
from holdfast.domain.task.transition import Applied, Transition
from holdfast.ports import Beat, Renewal, Store
from holdfast.testing.clock import ManualClock

LEASE_SECONDS = 30.0


class Scene:
    """A store whose every move the test makes itself."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.clock = clock
        self.store = store
        self._requests = count()
        self.app = Holdfast(store, clock=clock)
        checkpoints: dict[str, Any] = {"on_invalid": "restart", "checkpoint_max_age": "7d"}
        self.flow = self.app.workflow("tenant.upgrade", payload=int, keep="1h", **checkpoints)

        @self.flow.stage
        async def snapshot(ctx: Context, order: int) -> None: ...

        @self.flow.stage
        async def migrate(ctx: Context, order: int) -> None: ...

    async def submit(self, *, key: str | None = None, tenant: str = "t-1") -> str:
        return (await self.flow.submit(1, tenant=tenant, key=key)).id

    async def hold(self, task_id: str, *, plan: str | None) -> None:
        """A task that nobody has let go."""
        await self.insert(task_id, plan=plan, held=True)

    async def insert(
        self,
        task_id: str,
        *,
        type: str = "tenant.upgrade",
        plan: str | None = None,
        held: bool = False,
    ) -> None:
        now = self.clock.now()
        task = Task(
            id=task_id,
            type=type,
            plan=plan,
            stages=("snapshot",),
            status=Status.CREATED if held else Status.PENDING,
            created_at=now,
            status_since=now,
            updated_at=now,
        )
        await self.store.tasks.insert([decide.submit(task, b"1", "d", held=held)], depth_limit=10)

    async def plan(self, tenants: Sequence[str], **terms: Any) -> list[str]:
        """Plan up-7, with a task for each tenant; their ids."""
        tasks = [self.flow.on(1, tenant=tenant) for tenant in tenants]
        made = await self.app.plan("up-7", tasks, **terms)
        return [task.id for task in await made.tasks()]

    async def drive(self, *states: MemberState) -> Plan:
        """One step of the plan's driver, who finds its first tasks like this."""
        claimed = await self.store.plans.claim("w-1", limit=1, lease_seconds=LEASE_SECONDS)
        plan = claimed.plans[0] if claimed.plans else await self._plan()
        members = await self.store.plans.members(plan.id)
        seen = PlanObservation(
            moves={i: Member(state) for i, state in enumerate(states)}, moving=True
        )
        request = f"step-{next(self._requests)}"
        change = rollout.advance(plan, members, seen, now=self.clock.now(), request=request)
        assert change is not None
        outcome = await self.store.plans.apply(change, lease_seconds=LEASE_SECONDS)
        assert isinstance(outcome, PlanApplied)
        return outcome.plan

    async def _plan(self) -> Plan:
        [plan] = await self.store.plans.load(["up-7"])
        assert plan is not None
        return plan

    async def why(self, task_id: str) -> str:
        return await self.app.why(task_id)

    async def beat(
        self,
        worker: str = "w-1",
        *,
        types: tuple[str, ...] = ("tenant.upgrade",),
        queues: tuple[str, ...] = ("default",),
        running: int = 0,
        renewals: tuple[Renewal, ...] = (),
    ) -> None:
        beat = Beat(
            worker=worker,
            host="here",
            pid=1,
            types=types,
            queues=queues,
            slots=2,
            running=running,
            started_at=self.clock.now(),
        )
        await self.store.tasks.renew(beat, renewals, lease_seconds=LEASE_SECONDS)

    async def claim(self, worker: str = "w-1") -> Task:
        [claimed] = await self.store.tasks.claim(
            worker,
            request=f"{worker}-{next(self._requests)}",
            queues=["default"],
            limit=1,
            lease_seconds=LEASE_SECONDS,
        )
        return claimed.task

    async def apply(self, transition: Transition) -> Task:
        [outcome] = await self.store.tasks.apply([transition])
        assert isinstance(outcome, Applied)
        return outcome.task

    async def finish_stage(self, task: Task) -> Task:
        now = self.clock.now()
        done = Done(result=b"null", data={}, started_at=now, duration_seconds=0.0)
        policy = Policy(on_invalid="restart", max_age_seconds=7 * 86_400.0)
        return await self.apply(
            decide.stage_done(task, done, checkpoint=None, now=now, policy=policy)
        )

    async def fail(self, task: Task, *, retry_seconds: float | None = None) -> Task:
        """Fail the task: for good, or until a retry after ``retry_seconds``."""
        now = self.clock.now()
        failure = Failure(
            kind=FailureKind.STAGE,
            error="OSError",
            message="no route",
            stage=task.at_stage or "",
            attempt=1,
            at=now,
        )
        failed = Failed(failure=failure, started_at=now, retry_seconds=retry_seconds)
        transition = decide.stage_failed(task, failed, Retry(max=3), checkpoint=None, now=now)
        return await self.apply(transition)
