"""Alerts are sent to hooks once, however many services notice them.

The deliveries of one alert to one hook on one day form a numbered series: odd numbers raise the
alert, even numbers clear it. A service looks up the last number of that day, or of the day before,
and knows what was sent. Two services that find the same next number write one delivery, because the
number is part of its id. A service that starts finds there which alerts other services, even
stopped ones, have reported as raised.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from holdfast.domain import notification
from holdfast.domain.errors import StoreError
from holdfast.domain.notification import Delivery, Hook
from holdfast.insight.views.tasks import at
from holdfast.observe import alerts
from holdfast.observe.alerts import AlertCleared, AlertRaised, Name
from holdfast.observe.snapshot import Alert

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

log = logging.getLogger("holdfast.monitor")

Change: TypeAlias = AlertRaised | AlertCleared

PENDING_LIMIT = 200  # changes, while the store is away; beyond it the oldest are forgotten
PAGE, LOADED_AT_ONCE = 50, 500  # deliveries that are loaded together
FIRST_FEW = 2  # the first delivery of a day raises the alert or clears it
NUMBERS_MAX = 1_000  # of one alert on one day
DAY_SECONDS = 86_400
KEEP_SECONDS = 3.0 * DAY_SECONDS  # so that all of yesterday is there


class DeliverySeries(NamedTuple):
    """The deliveries of one alert to one hook on one day."""

    hook: str
    alert: Name
    day: int

    def id(self, number: int) -> str:
        code, queue = self.alert
        of = hashlib.blake2s(f"{code}\n{queue}\n{self.hook}".encode(), digest_size=8)
        return f"alert-{of.hexdigest()}-{self.day}-{number}"


class LastDelivery(NamedTuple):
    """The last delivery of a series; it is false if the series is empty."""

    line: DeliverySeries
    number: int

    def __bool__(self) -> bool:
        return self.number > 0


class LastNotified(NamedTuple):
    """The alerts that were last reported to hooks as active, and those reported as ended."""

    raised: dict[Name, Alert]
    cleared: set[Name]


class AlertNotifier:
    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._pending: deque[Change] = deque(maxlen=PENDING_LIMIT)

    def note(self, change: Change) -> None:
        self._pending.append(change)

    async def deliver(self) -> None:
        """Write the pending notifications; while the store does not answer, they wait."""
        while self._pending:
            try:
                for hook in self._hooks():
                    await self._notify(hook, self._pending[0])
            except (StoreError, TimeoutError):
                return
            self._pending.popleft()

    async def last_notified(self, names: Collection[Name]) -> LastNotified:
        """Return the last notification about each of these alerts, of today or yesterday."""
        today = _day(self._app.clock.now())
        lines = [
            DeliverySeries(hook.name, name, day)
            for day in (today - 1, today, today + 1)
            for hook in self._hooks()
            for name in names
        ]
        newest = {(line.hook, line.alert): line for line in await self._non_empty(lines)}
        last_notified = LastNotified({}, set())
        for line in newest.values():
            last = await self._last(line)
            if last.number % 2 == 0:
                last_notified.cleared.add(line.alert)
                continue
            if alert := _alert_in(await self._payload(last)):
                last_notified.raised[line.alert] = alert
        return last_notified

    async def _non_empty(self, lines: Sequence[DeliverySeries]) -> list[DeliverySeries]:
        """Return the series that have a delivery."""
        ids = [(line, self._task_id(line, n)) for line in lines for n in range(1, FIRST_FEW + 1)]
        begun: dict[DeliverySeries, None] = {}
        for start in range(0, len(ids), LOADED_AT_ONCE):
            page = ids[start : start + LOADED_AT_ONCE]
            tasks = await self._app.store.views.load([task_id for _, task_id in page])
            begun |= {line: None for (line, _), task in zip(page, tasks, strict=True) if task}
        return list(begun)

    async def _notify(self, hook: Hook, change: Change) -> None:
        alert, is_raised = change.alert, isinstance(change, AlertRaised)
        line, last = await self._newest(hook, change)
        if last and (last.number % 2 == is_raised or change.at < await self._when(last)):
            return  # the hook was notified of that, or of something newer
        number = last.number if last.line == line else 0
        number += 1 if (number + 1) % 2 == is_raised else 2
        if number > NUMBERS_MAX:
            log.error(
                "alert %s changes too often: hook %s gets no more notifications today",
                alert.code,
                hook.name,
            )
            return
        event = alerts.name_of(change)
        to = f"{notification.HOOK}{hook.name}" if hook.wants(event) else notification.NOBODY
        data = msgspec.to_builtins(alert) | {"since": at(alert.since)}
        await self._app.notifier.notify(
            to,
            event,
            change.at,
            data,
            task_id=self._task_id(line, number),
            keep_seconds=KEEP_SECONDS,
        )

    async def _newest(self, hook: Hook, change: Change) -> tuple[DeliverySeries, LastDelivery]:
        """Return the series to continue and its last delivery; a clock that is ahead may already be
        in the next day.
        """
        alert, day = change.alert, _day(change.at)
        today = DeliverySeries(hook.name, alert.name, day)
        for line in (today._replace(day=day + 1), today, today._replace(day=day - 1)):
            if last := await self._last(line):
                return (line if line.day > day else today), last
        return today, LastDelivery(today, 0)

    async def _last(self, line: DeliverySeries) -> LastDelivery:
        """Return the delivery with the highest number."""
        last = 0
        while last < NUMBERS_MAX:
            numbers = range(last + 1, last + PAGE + 1)
            tasks = await self._app.store.views.load([self._task_id(line, n) for n in numbers])
            used = [n for n, task in zip(numbers, tasks, strict=True) if task is not None]
            if not used:
                break
            last = used[-1]
        return LastDelivery(line, last)

    async def _when(self, last: LastDelivery) -> float:
        """Return when the event of the delivery happened."""
        delivery = _read(await self._payload(last))
        return delivery.at if delivery is not None else 0.0

    async def _payload(self, last: LastDelivery) -> bytes:
        detail = await self._app.store.views.detail(self._task_id(last.line, last.number))
        return detail.payload if detail is not None else b""

    def _hooks(self) -> list[Hook]:
        """Return the hooks that receive alerts."""
        hooks = self._app.hooks.hooks.values()
        return [hook for hook in hooks if any(map(hook.wants, notification.ALERT_EVENTS))]

    def _task_id(self, line: DeliverySeries, number: int) -> str:
        return self._app.store.partitioned_id(line.id(number), tenant=None, key=None)


def _read(payload: bytes) -> Delivery | None:
    try:
        return msgspec.json.decode(payload, type=Delivery)
    except msgspec.MsgspecError:
        return None


def _alert_in(payload: bytes) -> Alert | None:
    """Return the alert in a payload; None if it cannot be read."""
    delivery = _read(payload)
    try:
        fields = msgspec.json.decode(delivery.data) | {"since": delivery.at} if delivery else None
        return msgspec.convert(fields, Alert)
    except msgspec.MsgspecError:
        log.warning("a stored alert cannot be read; hooks may not be notified that it ended")
        return None


def _day(when: float) -> int:
    return int(when // DAY_SECONDS)
