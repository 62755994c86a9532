"""Triggers for code without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from holdfast.engine.blocking.app import Blocking, BlockingHandle, Side, blocked
from holdfast.engine.triggers.control import TriggerHandle
from holdfast.engine.triggers.declared_triggers import TriggerTerms
from holdfast.engine.triggers.schedules import Schedules

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.domain.trigger.trigger import Trigger, TriggerStatus
    from holdfast.engine.declare import Submittable

P = TypeVar("P")
R = TypeVar("R")


class BlockingTrigger(Generic[R]):
    __slots__ = ("_face", "_handle", "id")

    def __init__(self, face: Blocking, handle: TriggerHandle[R]) -> None:
        self._face = face
        self._handle = handle
        self.id = handle.id

    def info(self) -> Trigger:
        return self._face.call(self._handle.info())

    def next(self, count: int = 1) -> list[datetime]:
        return self._face.call(self._handle.next(count))

    def fire(self, reason: str = "") -> BlockingHandle[R]:
        return BlockingHandle(self._face, self._face.call(self._handle.fire(reason)))

    def pause(self, reason: str = "") -> TriggerStatus:
        return self._face.call(self._handle.pause(reason))

    def resume(self, reason: str = "") -> TriggerStatus:
        return self._face.call(self._handle.resume(reason))

    def cancel(self, reason: str = "") -> TriggerStatus:
        return self._face.call(self._handle.cancel(reason))


class BlockingSchedules(Side[Schedules]):
    """As `Schedules`; its triggers block, too."""

    def acting_as(self, actor: str, origin: str = "") -> BlockingSchedules:
        return BlockingSchedules(self.face, self.part.acting_as(actor, origin))

    page = blocked(Schedules.page)

    @overload
    def at(
        self,
        when: datetime | float,
        send: Submittable[None, R],
        payload: None = None,
        *,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    @overload
    def at(
        self,
        when: datetime | float,
        send: Submittable[P, R],
        payload: P,
        *,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    def at(
        self,
        when: datetime | float,
        send: Submittable[Any, R],
        payload: Any = None,
        *,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]:
        made = self.part.at(when, send, payload, replace=replace, **terms)
        return self._face_of(made)

    @overload
    def every(
        self,
        interval: float | str,
        send: Submittable[None, R],
        payload: None = None,
        *,
        start: datetime | float | None = None,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    @overload
    def every(
        self,
        interval: float | str,
        send: Submittable[P, R],
        payload: P,
        *,
        start: datetime | float | None = None,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    def every(
        self,
        interval: float | str,
        send: Submittable[Any, R],
        payload: Any = None,
        *,
        start: datetime | float | None = None,
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]:
        made = self.part.every(interval, send, payload, start=start, replace=replace, **terms)
        return self._face_of(made)

    @overload
    def cron(
        self,
        expression: str,
        send: Submittable[None, R],
        payload: None = None,
        *,
        tz: str = "UTC",
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    @overload
    def cron(
        self,
        expression: str,
        send: Submittable[P, R],
        payload: P,
        *,
        tz: str = "UTC",
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]: ...

    def cron(
        self,
        expression: str,
        send: Submittable[Any, R],
        payload: Any = None,
        *,
        tz: str = "UTC",
        replace: bool = False,
        **terms: Unpack[TriggerTerms],
    ) -> BlockingTrigger[R]:
        made = self.part.cron(expression, send, payload, tz=tz, replace=replace, **terms)
        return self._face_of(made)

    def get(self, name: str, *, tenant: str | None = None) -> BlockingTrigger[Any]:
        return self._face_of(self.part.get(name, tenant=tenant))

    def list(
        self, *, statuses: Sequence[TriggerStatus] = (), tenant: str | None = None
    ) -> Iterator[Trigger]:
        cursor: str | None = None
        while True:
            page = self.page(statuses=statuses, tenant=tenant, cursor=cursor)
            yield from page.triggers
            if (cursor := page.cursor) is None:
                return

    def _face_of(self, made: Coroutine[Any, Any, TriggerHandle[R]]) -> BlockingTrigger[R]:
        return BlockingTrigger(self.face, self.face.call(made))
