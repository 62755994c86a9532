"""The triggers that code declares are kept the same in the store.

At its start a worker makes those that are not there, and writes anew those whose definition has
changed; their counters stay, and the time that they wait for stays, too, if their schedule is what
it was. If that has passed meanwhile, the misfire policy says what becomes of it. A person's pause
stays, and a person's cancel stays for as long as the schedule is unchanged. Later on a worker only
makes again what is gone or was taken for removed: in a rolling deploy the old code still runs when
the new has written its definitions.

A trigger that was declared, whose task type this worker knows, that this worker does not declare
and that no live worker's beat names has been removed from the code: it is cancelled, with that
reason. This is judged at the start of each worker and at each of its fire times. Whoever does not
know the type does not judge, but for one that is due and whose type no live worker has known for
a while: it went together with its type. Declared again, it comes back. Only workers that fire
triggers count.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from holdfast.clock import new_id
from holdfast.domain.errors import Contended, StoreError
from holdfast.domain.trigger import firing
from holdfast.domain.trigger.definition import create, has_definition, redefine, supersede
from holdfast.domain.trigger.trigger import (
    Changed,
    Definition,
    Trigger,
    TriggerChange,
    TriggerStatus,
)
from holdfast.ports import WorkerInfo
from holdfast.registry import TaskType, TriggerDef
from holdfast.runtime.compare_and_swap import compare_and_swap
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment

log = logging.getLogger("holdfast.scheduler")

SYNC_SECONDS = 600.0  # again, should another worker have judged before it saw our beat
SWEEP_AGAIN_SECONDS = 5.0
PAGE = 500

# A cancelled one may be there only for the sake of its declaration (see `firing.cancel`).
JUDGED = tuple(status for status in TriggerStatus if status is not TriggerStatus.COMPLETED)


class DeclaredTriggers:
    def __init__(self, env: WorkerEnvironment, announce: Callable[[], Awaitable[object]]) -> None:
        """Keep the triggers; ``announce`` tells the others that we live, and what we declare."""
        self._store, self._registry, self._outages = env.store, env.registry, env.outages
        self._clock, self._chance = env.clock, env.chance
        self._queue_limit = env.options.queue_limit
        self._live_within_seconds = env.live_within_seconds
        self._announce = announce

    def ids(self) -> dict[str, TriggerDef]:
        """Return the declared triggers by the id under which the store has them."""
        return {
            self._store.trigger_id(declared.name, tenant=declared.definition.tenant): declared
            for declared in self._registry.triggers.values()
        }

    def body(self, trigger: Trigger, declared: TaskType, fire_time: float) -> bytes:
        """Return the payload of its task: what its function makes, or else the stored one."""
        ours = self.ids().get(trigger.id) if trigger.declared else None
        if ours is not None and ours.make is not None:
            return ours.make(fire_time)
        body = bytes(trigger.payload)
        declared.payload.decode(body)
        return body

    async def live(self) -> Sequence[WorkerInfo]:
        """Return the live workers that fire triggers: no other can serve one."""
        workers = await self._store.views.workers(live_within_seconds=self._live_within_seconds)
        return [worker for worker in workers if worker.live and worker.beat.schedules]

    async def run(self) -> None:
        """Sweep, then restore now and then; the first sync is the scheduler's, before it fires."""
        while not await self._done(self.sweep()):
            await sleep(self._clock, SWEEP_AGAIN_SECONDS)
        while True:
            await sleep(self._clock, SYNC_SECONDS)
            await self._done(self.restore())

    async def _done(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except StoreError as error:
            self._outages.note(error)
            return False
        return True

    async def sync(self) -> None:
        """Write, at the start, what our code declares."""
        await self._write_all(redefines=True)

    async def restore(self) -> None:
        """Write what is gone, or what another worker has judged before it saw our beat."""
        await self._write_all(redefines=False)

    async def _write_all(self, *, redefines: bool) -> None:
        ours = self.ids()
        if ours:
            await self._announce()  # before: else another worker might judge what we declare
        for trigger_id, declared in ours.items():
            await self._write(trigger_id, declared.definition, redefines)

    async def _write(self, trigger_id: str, wanted: Definition, redefines: bool) -> None:
        triggers = self._store.triggers

        async def write(there: Trigger | None) -> bool | None:
            if there is not None and not _is_to_be_written(there, wanted, redefines):
                return True
            change = self._change(trigger_id, there, wanted)
            [outcome] = await triggers.apply([change], depth_limit=self._queue_limit)
            if not isinstance(outcome, Changed):
                return None
            log.info("trigger %s is written as the code declares it", trigger_id)
            return True

        try:
            await compare_and_swap(trigger_id, lambda: triggers.find(trigger_id), write)
        except Contended as error:
            template = "trigger %s was changed by others during each of %d attempts"
            log.warning(template, trigger_id, error.tries)

    def _change(self, trigger_id: str, there: Trigger | None, wanted: Definition) -> TriggerChange:
        drawn: dict[str, Any] = {
            "now": self._clock.now(),
            "chance": self._chance.random(),
            "request": new_id(self._clock, self._chance),
        }
        if there is None:
            return create(wanted, trigger_id, **drawn)
        if there.tenant != wanted.tenant:
            return supersede(there, wanted, **drawn)
        return redefine(there, wanted, **drawn)

    async def sweep(self) -> None:
        """Cancel what has been removed from the code."""
        cursor: str | None = None
        while True:
            page = await self._store.triggers.find_all(
                statuses=JUDGED, declared=True, limit=PAGE, cursor=cursor
            )
            await self._judge([trigger for trigger in page.triggers if self._may_judge(trigger)])
            cursor = page.cursor
            if cursor is None:
                return

    def _may_judge(self, trigger: Trigger) -> bool:
        return (
            trigger.ended_at is None
            and self._registry.find(trigger.target) is not None
            and trigger.id not in self.ids()
        )

    async def _judge(self, suspects: Collection[Trigger]) -> None:
        if not suspects:
            return
        named = {trigger_id for worker in await self.live() for trigger_id in worker.beat.triggers}
        now = self._clock.now()
        changes = [
            firing.drop(trigger, now=now, request=new_id(self._clock, self._chance))
            for trigger in suspects
            if trigger.id not in named
        ]
        if not changes:
            return
        answers = await self._store.triggers.apply(changes, depth_limit=self._queue_limit)
        for answer in answers:
            if isinstance(answer, Changed):
                log.warning("trigger %s is %s: cancelled", answer.trigger.id, firing.NOT_DECLARED)


def _is_to_be_written(there: Trigger, wanted: Definition, redefines: bool) -> bool:
    if _was_dropped(there):
        return True
    return redefines and not has_definition(there, wanted) and not _stays_cancelled(there, wanted)


def _stays_cancelled(there: Trigger, wanted: Definition) -> bool:
    """Return whether a person has cancelled these times, whatever else has changed."""
    is_cancelled = there.declared and there.status is TriggerStatus.CANCELLED
    return is_cancelled and there.schedule == wanted.schedule and there.tenant == wanted.tenant


def _was_dropped(trigger: Trigger) -> bool:
    is_cancelled = trigger.status is TriggerStatus.CANCELLED
    return is_cancelled and trigger.reason == firing.NOT_DECLARED
