"""The lease under which one driver holds a plan, renewed at a third of its time."""

from __future__ import annotations

from holdfast.domain.plan.plan import Plan
from holdfast.runtime.environment import WorkerEnvironment

MARGIN = 0.5  # of a lease: a driver that has not renewed it for so long sends nothing more


class DriverLease:
    def __init__(self, plan: Plan, env: WorkerEnvironment) -> None:
        self._plan_id, self._id = plan.id, plan.lease.id if plan.lease else ""
        self._store, self._clock = env.store, env.clock
        self.seconds = env.options.lease_seconds
        self._renewed_at = env.clock.steady()

    def is_on(self, plan: Plan) -> bool:
        """Return whether the plan, as it was read, is still held under this lease."""
        return plan.lease is not None and plan.lease.id == self._id

    @property
    def is_safe(self) -> bool:
        """Return whether the lease is surely ours, so that commands may be sent."""
        return self._clock.steady() - self._renewed_at < self.seconds * MARGIN

    async def keep(self) -> bool:
        """Renew the lease when it is time; False: the plan is another's."""
        asked_at = self._clock.steady()
        if asked_at - self._renewed_at < self.seconds / 3:
            return True
        is_kept = await self._store.plans.renew(self._plan_id, self._id, lease_seconds=self.seconds)
        if is_kept:
            self.note_renewed(asked_at)
        return is_kept

    def note_renewed(self, asked_at: float) -> None:
        """Note a renewal, also by a write; the lease runs from when it was sent."""
        self._renewed_at = asked_at

    async def give_back(self) -> None:
        """Let another driver go on at once: this process ends."""
        await self._store.plans.renew(self._plan_id, self._id, lease_seconds=0.0)
