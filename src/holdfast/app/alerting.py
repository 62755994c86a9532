"""Alerts told to hooks, once, however many services judge.

The deliveries of one alert to one hook on one day are numbered: what raises it is odd, what clears
it is even. A service that finds the last of them to say what it has to say was told already. Two
that find the same next number write one delivery, because the number is in its id.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.app.shapes import at
from holdfast.domain import telling
from holdfast.domain.errors import StoreError
from holdfast.domain.telling import Hook
from holdfast.observe.alerts import AlertCleared, AlertRaised

if TYPE_CHECKING:
    from holdfast.app.core import Holdfast

log = logging.getLogger("holdfast.monitor")

Change: TypeAlias = AlertRaised | AlertCleared

UNTOLD_LIMIT = 200  # changes, while the store is away; beyond it the oldest are forgotten
PAGE = 50
NUMBERS_MAX = 1_000  # of one alert on one day
DAY_SECONDS = 86_400


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
                for hook in self._app.hooks.hooks.values():
                    await self._tell(hook, self._untold[0])
            except (StoreError, TimeoutError):
                return
            self._untold.popleft()

    async def _tell(self, hook: Hook, change: Change) -> None:
        if not any(hook.wants(event) for event in telling.ALERT_EVENTS):
            return
        is_raised = isinstance(change, AlertRaised)
        last = await self._last(hook, change)
        if last and last % 2 == is_raised:
            return
        number = last + 1 if (last + 1) % 2 == is_raised else last + 2
        if number > NUMBERS_MAX:
            log.error("alert %s changes too often: %s is not told", change.alert.code, hook.name)
            return
        event = type(change).__name__
        to = f"{telling.HOOK}{hook.name}" if hook.wants(event) else telling.NOBODY
        data = msgspec.to_builtins(change.alert) | {"since": at(change.alert.since)}
        task_id = self._id(hook, change, number)
        await self._app.teller.tell(to, event, change.at, data, task_id=task_id)

    async def _last(self, hook: Hook, change: Change) -> int:
        """The highest number of the day; 0: there is none."""
        last = 0
        while last < NUMBERS_MAX:
            numbers = range(last + 1, last + PAGE + 1)
            ids = [self._id(hook, change, number) for number in numbers]
            found = await self._app.store.load(ids)
            there = [n for n, task in zip(numbers, found, strict=True) if task is not None]
            if not there:
                break
            last = there[-1]
        return last

    def _id(self, hook: Hook, change: Change, number: int) -> str:
        alert, day = change.alert, int(change.at // DAY_SECONDS)
        of = hashlib.blake2s(f"{alert.code}\n{alert.queue}\n{hook.name}".encode(), digest_size=8)
        name = f"alert-{of.hexdigest()}-{day}-{number}"
        return self._app.store.home(name, tenant=None, key=None)
