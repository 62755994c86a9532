"""Plans for code without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.engine.blocking.app import Blocking, BlockingHandle
from holdfast.engine.operations.expired_checkpoints import Forecast
from holdfast.engine.plans.create import Planned, Plans, PlanTerms, Preview
from holdfast.engine.plans.handle import EVENTS, PlanHandle, PlanInfo

if TYPE_CHECKING:
    from holdfast.domain.plan.events import PlanEvent
    from holdfast.domain.plan.plan import PlanStatus


class BlockingPlans:
    """As `Plans`; its handles block, too."""

    def __init__(self, face: Blocking, part: Plans) -> None:
        self._face, self._part = face, part

    def acting_as(self, actor: str, origin: str = "") -> BlockingPlans:
        return BlockingPlans(self._face, self._part.acting_as(actor, origin))

    def __call__(
        self, plan_id: str, tasks: Sequence[Planned], **terms: Unpack[PlanTerms]
    ) -> BlockingPlanHandle:
        handle = self._face.call(self._part(plan_id, tasks, **terms))
        return BlockingPlanHandle(self._face, handle)

    def preview(
        self, plan_id: str, tasks: Sequence[Planned], **terms: Unpack[PlanTerms]
    ) -> Preview:
        """A dry run."""
        return self._face.call(self._part.preview(plan_id, tasks, **terms))

    def get(self, plan_id: str) -> BlockingPlanHandle:
        return BlockingPlanHandle(self._face, self._part.get(plan_id))

    def find(self, *statuses: PlanStatus, most: int = 1000) -> list[PlanInfo]:
        """The newest first."""

        async def collected() -> list[PlanInfo]:
            return [plan async for plan in self._part.find(*statuses, most=most)]

        return self._face.call(collected())


class BlockingPlanHandle:
    __slots__ = ("_face", "_handle", "id")

    def __init__(self, face: Blocking, handle: PlanHandle) -> None:
        self._face, self._handle, self.id = face, handle, handle.id

    def info(self) -> PlanInfo:
        return self._face.call(self._handle.info())

    def tasks(self) -> list[BlockingHandle[Any]]:
        found = self._face.call(self._handle.tasks())
        return [BlockingHandle(self._face, handle) for handle in found]

    def events(self, *, after_version: int = 0, limit: int = EVENTS) -> Sequence[PlanEvent]:
        return self._face.call(self._handle.events(after_version=after_version, limit=limit))

    def pause(self, reason: str = "") -> PlanStatus:
        return self._face.call(self._handle.pause(reason))

    def resume(self, reason: str = "") -> PlanStatus:
        return self._face.call(self._handle.resume(reason))

    def cancel(self, reason: str = "") -> PlanStatus:
        return self._face.call(self._handle.cancel(reason))

    def retry(self, reason: str = "") -> PlanStatus:
        return self._face.call(self._handle.retry(reason))

    def starting_over(self) -> list[str]:
        return self._face.call(self._handle.starting_over())

    def forecast(self) -> Forecast:
        return self._face.call(self._handle.forecast())

    def rollback(
        self, reason: str = "", *, wave: int | None = None, force: bool = False
    ) -> PlanStatus:
        return self._face.call(self._handle.rollback(reason, wave=wave, force=force))

    def rested(self, timeout: float | str | None = None) -> PlanInfo:
        return self._face.call(self._handle.rested(timeout))
