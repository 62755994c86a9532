"""The patrol finds triggers that a clock has sent too far into the future, and brings them back.

Fire times are wall times. While a clock is two hours ahead, an interval fires for times that are
two hours away, and then waits for the next of them; set right, the clock would leave it silent for
two hours. So each scheduler walks through the triggers that wait, a page at a time, for as long as
it lives: no jump has to be noticed, and one that happened while no worker ran is mended as well.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.domain.trigger import firing
from holdfast.domain.trigger.trigger import PENDING, Trigger
from holdfast.ports.trigger_shortcuts import NO_TASKS
from holdfast.runtime.environment import WorkerEnvironment

log = logging.getLogger("holdfast.scheduler")

EVERY_SECONDS = 10.0
PAGE = 100
LEASE_SECONDS = 30.0
REMEMBERED = 10_000


class Patrol:
    def __init__(self, env: WorkerEnvironment) -> None:
        self._triggers, self._owner = env.store.triggers, env.worker
        self._clock, self._chance = env.clock, env.chance
        self._cursor: str | None = None
        self._found_some = False  # in this walk: a clock that was ahead has sent away more than one
        self._next_at = float("-inf")  # by the steady clock
        self._right: dict[str, float | None] = {}  # by id, the fire time that the store calls right

    @property
    def wait_seconds(self) -> float:
        """Return how long the next page may wait: a walk that has found some makes haste."""
        if self._cursor is None or not self._found_some:
            return float("inf")
        return max(0.0, self._next_at - self._clock.steady())

    async def step(self) -> None:
        """Check the next page of triggers, if it is time."""
        if self._clock.steady() < self._next_at:
            return
        self._next_at = self._clock.steady() + EVERY_SECONDS
        if self._cursor is None:
            self._found_some = False
        page = await self._triggers.find_all(
            statuses=tuple(PENDING), limit=PAGE, cursor=self._cursor
        )
        self._cursor = page.cursor
        for trigger in self._ahead(page.triggers):
            await self._bring_back(trigger)

    def _ahead(self, triggers: Sequence[Trigger]) -> list[Trigger]:
        now = self._clock.now()
        return [
            trigger
            for trigger in triggers
            if trigger.owner is None
            and firing.is_ahead(trigger, now=now)
            and self._right.get(trigger.id, -1.0) != trigger.fire_time
        ]

    async def _bring_back(self, suspect: Trigger) -> None:
        """Bring a trigger back if it is ahead by the store's clock too, which decides."""
        leased = await self._triggers.claim(
            self._owner, trigger_id=suspect.id, lease_seconds=LEASE_SECONDS
        )
        if not leased.triggers:
            return
        [trigger] = leased.triggers
        now = trigger.updated_at  # when it was handed out, by the store's clock
        if firing.is_ahead(trigger, now=now):
            log.warning("trigger %s, set by a clock ahead, waits for its next time", trigger.id)
            self._found_some = True
            change = firing.bring_back(trigger, now=now, chance=self._chance.random())
        else:
            if len(self._right) >= REMEMBERED:
                self._right.clear()
            self._right[trigger.id] = trigger.fire_time
            change = firing.give_back(trigger, now=now)
        await self._triggers.apply([change], depth_limit=NO_TASKS)
