"""The handle of a plan: its state, its tasks and the commands to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.domain.errors import PlanNotFound
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import ENDED, MemberState, Plan, PlanCommand, PlanStatus
from holdfast.domain.plan.rollout import soaks_seconds
from holdfast.encoding.codec import UntypedCodec
from holdfast.engine.operations.expired_checkpoints import Forecast, forecast_of_plan
from holdfast.engine.plans.control import PlanControl
from holdfast.runtime.deadlines import wait_within

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast
    from holdfast.engine.handle import Handle

EVENTS = 1000


class WaveInfo(msgspec.Struct, frozen=True, kw_only=True):
    number: int  # from 1
    size: int
    counts: dict[MemberState, int]  # only counts above zero; they add up to the size


class PlanInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a plan."""

    id: str
    status: PlanStatus
    cancel_requested: bool
    progress: float  # 0..1: the share of its tasks that have ended
    total: int
    wave: int  # the present one, from 1
    waves: tuple[WaveInfo, ...]
    max_concurrency: int | None
    soak_seconds_left: float
    ends_in_seconds: float | None  # an estimate; None: none is possible
    reason: str | None
    legal: tuple[PlanCommand, ...]
    driver: str | None
    created_at: float
    started_at: float | None
    updated_at: float

    def count(self, *states: MemberState) -> int:
        """Return how many of the plan's tasks are in one of these states."""
        return sum(wave.counts.get(state, 0) for wave in self.waves for state in states)


class PlanHandle:
    """A plan: read its state, its tasks and its events, wait for its end, and send it commands."""

    __slots__ = ("_app", "_control", "id")

    def __init__(self, app: Holdfast, plan_id: str, control: PlanControl) -> None:
        self._app, self._control, self.id = app, control, plan_id

    def __repr__(self) -> str:
        return f"PlanHandle({self.id!r})"

    async def info(self) -> PlanInfo:
        """Return the state of the plan."""
        return info(await self._plan(), now=self._app.clock.now())

    async def tasks(self) -> list[Handle[Any]]:
        """Return handles of the plan's tasks, in its order."""
        from holdfast.engine.handle import Handle

        tasks = await self._app.store.plans.tasks(self.id)
        if tasks is None:
            raise PlanNotFound(self.id)
        return [Handle(self._app, task_id, UntypedCodec()) for task_id in tasks.ids]

    async def events(self, *, after_version: int = 0, limit: int = EVENTS) -> Sequence[PlanEvent]:
        """Return the plan's events in order, those after ``after_version``."""
        return await self._app.store.plans.events(self.id, limit=limit, after_version=after_version)

    async def pause(self, reason: str = "") -> PlanStatus:
        """Pause the plan: no task is released, and those that run pause at their next boundary."""
        return (await self._control.pause(self.id, reason=reason)).status

    async def resume(self, reason: str = "") -> PlanStatus:
        """Resume the plan; after a halt, the failures so far no longer count."""
        return (await self._control.resume(self.id, reason=reason)).status

    async def cancel(self, reason: str = "") -> PlanStatus:
        """Cancel the tasks that have not ended; the plan is cancelled when all have."""
        return (await self._control.cancel(self.id, reason=reason)).status

    async def retry(self, reason: str = "") -> PlanStatus:
        """Run the failed tasks again, from their checkpoints."""
        return (await self._control.retry(self.id, reason=reason)).status

    async def expired_checkpoints(self) -> list[str]:
        """Return the failed tasks that a retry would start over, because their checkpoint has
        expired.

        The first 1 000 that failed are judged: `forecast` says of how many.
        """
        return list((await self.forecast()).ids)

    async def forecast(self) -> Forecast:
        """Return the failed tasks that a retry would start over, and how many were judged."""
        return await forecast(self._app, await self._plan())

    async def rollback(
        self, reason: str = "", *, wave: int | None = None, force: bool = False
    ) -> PlanStatus:
        """Undo, the newest first, all tasks that did anything, or those of one wave (from 1)."""
        plan = await self._control.rollback(self.id, wave=wave, force=force, reason=reason)
        return plan.status

    async def wait(self, timeout: float | str | None = None) -> PlanInfo:
        """Wait until the plan has ended or waits for a person; ResultTimeout if not in time."""
        wait = partial(self._app.waiters.wait_for_plan, self.id, self._info_if_stopped)
        return await wait_within(self._app.clock, timeout, f"plan {self.id}", wait)

    async def _info_if_stopped(self, _: str) -> PlanInfo | None:
        plan = await self._plan()
        return info(plan, now=self._app.clock.now()) if plan.is_stopped else None

    async def _plan(self) -> Plan:
        [plan] = await self._app.store.plans.load([self.id])
        if plan is None:
            raise PlanNotFound(self.id)
        return plan


async def forecast(app: Holdfast, plan: Plan) -> Forecast:
    """Return which failed tasks of a plan would start over; only failed tasks are judged."""
    if not plan.count(MemberState.FAILED):
        return Forecast()
    return await forecast_of_plan(app.store, plan.id, now=app.clock.now(), find=app.registry.find)


def info(plan: Plan, *, now: float) -> PlanInfo:
    return PlanInfo(
        id=plan.id,
        status=plan.status,
        cancel_requested=plan.cancel_requested,
        progress=plan.progress,
        total=plan.total,
        wave=plan.wave + 1,
        waves=tuple(_wave(plan, wave) for wave in range(len(plan.waves))),
        max_concurrency=plan.max_concurrency,
        soak_seconds_left=soaks_seconds(plan, now),
        ends_in_seconds=ends_in_seconds(plan, now),
        reason=plan.reason,
        legal=plan.legal,
        driver=plan.lease.owner if plan.lease else None,
        created_at=plan.created_at,
        started_at=plan.started_at,
        updated_at=plan.updated_at,
    )


def _wave(plan: Plan, wave: int) -> WaveInfo:
    waiting = plan.waiting(wave)
    counts = {MemberState.WAITING: waiting} if waiting else {}
    return WaveInfo(number=wave + 1, size=plan.size(wave), counts={**counts, **plan.counts[wave]})


def ends_in_seconds(plan: Plan, now: float) -> float | None:
    """Return in how many seconds the plan ends at its present pace, with the soaks to come."""
    if plan.status is not PlanStatus.RUNNING or plan.started_at is None:
        return None
    soaks_left = (len(plan.waves) - 1 - plan.wave) * plan.soak_seconds
    if plan.soaks_since is not None:
        soaks_left += soaks_seconds(plan, now) - plan.soak_seconds
    soaked = plan.wave * plan.soak_seconds
    ended, worked = plan.count(*ENDED), now - plan.started_at - soaked
    if ended == 0 or worked <= 0:
        return None
    return (plan.total - ended) * worked / ended + max(0.0, soaks_left)
