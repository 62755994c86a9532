"""Alerts told to hooks, once, however many services judge.

The deliveries of one alert to one hook on one day are numbered: what raises it is odd, what clears
it is even. A service looks at the last of them, of that day or else of the day before: what it says
was told already. Two that find the same next number write one delivery, because the number is in
its id. One that starts finds there what others, who may be gone, have told as raised.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from holdfast.app.shapes import at
from holdfast.domain import telling
from holdfast.domain.errors import StoreError
from holdfast.domain.telling import Delivery, Hook
from holdfast.observe.alerts import AlertCleared, AlertRaised, Alerts, Name
from holdfast.observe.snapshot import Alert

if TYPE_CHECKING:
    from holdfast.app.core import Holdfast

log = logging.getLogger("holdfast.monitor")

Change: TypeAlias = AlertRaised | AlertCleared

UNTOLD_LIMIT = 200  # changes, while the store is away; beyond it the oldest are forgotten
PAGE, LOOK = 50, 500  # deliveries that are loaded together
FIRST_FEW = 8
NUMBERS_MAX = 1_000  # of one alert on one day
DAY_SECONDS = 86_400


class Line(NamedTuple):
    """The deliveries of one alert to one hook on one day."""

    hook: str
    alert: Name
    day: int

    def id(self, number: int) -> str:
        code, queue = self.alert
        of = hashlib.blake2s(f"{code}\n{queue}\n{self.hook}".encode(), digest_size=8)
        return f"alert-{of.hexdigest()}-{self.day}-{number}"


class AlertTelling:
    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._untold: deque[Change] = deque(maxlen=UNTOLD_LIMIT)

    def note(self, change: Change) -> None:
        self._untold.append(change)

    async def deliver(self) -> None:
        """What cannot be written while the store is away is written afterwards."""
        while self._untold:
            try:
                for hook in self._hooks():
                    await self._tell(hook, self._untold[0])
            except (StoreError, TimeoutError):
                return
            self._untold.popleft()

    async def raised(self, names: Collection[Name]) -> Alerts:
        """Of these, what hooks believe to stand: last told as raised, today or yesterday."""
        today = _day(self._app.clock.now())
        lines = [
            Line(hook.name, name, day)
            for day in (today - 1, today)
            for hook in self._hooks()
            for name in names
        ]
        newest = {(line.hook, line.alert): line for line in await self._begun(lines)}
        found: dict[Name, Alert] = {}
        for line in newest.values():
            detail = await self._app.store.detail(self._home(line, await self._last(line)))
            if detail is not None and (alert := _raised_by(detail.payload)):
                found[line.alert] = alert
        return found

    async def _begun(self, lines: Sequence[Line]) -> list[Line]:
        """Those with a delivery; the first few may be gone by now."""
        ids = [(line, self._home(line, n)) for line in lines for n in range(1, FIRST_FEW + 1)]
        begun: dict[Line, None] = {}
        for start in range(0, len(ids), LOOK):
            page = ids[start : start + LOOK]
            found = await self._app.store.load([task_id for _, task_id in page])
            begun |= {line: None for (line, _), task in zip(page, found, strict=True) if task}
        return list(begun)

    async def _tell(self, hook: Hook, change: Change) -> None:
        alert, is_raised = change.alert, isinstance(change, AlertRaised)
        line = Line(hook.name, (alert.code, alert.queue), _day(change.at))
        last = await self._last(line)
        known = last or await self._last(line._replace(day=line.day - 1))
        if known and known % 2 == is_raised:
            return
        number = last + 1 if (last + 1) % 2 == is_raised else last + 2
        if number > NUMBERS_MAX:
            log.error("alert %s changes too often: %s is not told", alert.code, hook.name)
            return
        event = type(change).__name__
        to = f"{telling.HOOK}{hook.name}" if hook.wants(event) else telling.NOBODY
        data = msgspec.to_builtins(alert) | {"since": at(alert.since)}
        task_id = self._home(line, number)
        await self._app.teller.tell(to, event, change.at, data, task_id=task_id)

    async def _last(self, line: Line) -> int:
        """The highest number; 0: there is none."""
        last = 0
        while last < NUMBERS_MAX:
            numbers = range(last + 1, last + PAGE + 1)
            found = await self._app.store.load([self._home(line, number) for number in numbers])
            there = [n for n, task in zip(numbers, found, strict=True) if task is not None]
            if not there:
                break
            last = there[-1]
        return last

    def _hooks(self) -> list[Hook]:
        """Those that hear of alerts."""
        hooks = self._app.hooks.hooks.values()
        return [hook for hook in hooks if any(map(hook.wants, telling.ALERT_EVENTS))]

    def _home(self, line: Line, number: int) -> str:
        return self._app.store.home(line.id(number), tenant=None, key=None)


def _raised_by(payload: bytes) -> Alert | None:
    """None: it tells of an end, or nobody here can read it."""
    try:
        told = msgspec.json.decode(payload, type=Delivery)
        if told.event != AlertRaised.__name__:
            return None
        return msgspec.convert(msgspec.json.decode(told.data) | {"since": told.at}, Alert)
    except msgspec.MsgspecError:
        log.warning("an alert that was told cannot be read; its end may not be told")
        return None


def _day(when: float) -> int:
    return int(when // DAY_SECONDS)
