"""Operations on queues: pause and resume their intake and their claiming, on all machines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from holdfast.domain import names, notification
from holdfast.domain.errors import UnknownQueue
from holdfast.engine.actor_calls import ActorCalls
from holdfast.engine.operations import switches as switch_ops
from holdfast.ports import LIVE_LEASES, Switch
from holdfast.registry import OWN_QUEUES

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

BOTH = (Switch.INTAKE, Switch.CLAIMING)


class Queues(ActorCalls):
    """The queues of one app's store, in one actor's name."""

    async def pause(
        self,
        queue: str,
        *,
        intake: bool = False,
        claiming: bool = False,
        reason: str = "",
        force: bool = False,
    ) -> dict[Switch, bool]:
        """Pause a queue's intake, its claiming or, when neither is named, both; False: it was
        paused.

        ``force``: also a queue that no task, type or live worker has.
        """
        switches = named_switches(queue, intake=intake, claiming=claiming)
        return await self.turn(queue, switches, on=False, reason=reason, force=force)

    async def resume(
        self, queue: str, *, intake: bool = False, claiming: bool = False, reason: str = ""
    ) -> dict[Switch, bool]:
        """Resume a queue's intake, its claiming or, when neither is named, both."""
        switches = named_switches(queue, intake=intake, claiming=claiming)
        return await self.turn(queue, switches, on=True, reason=reason)

    async def turn(
        self,
        queue: str,
        switches: Sequence[Switch],
        *,
        on: bool,
        reason: str = "",
        force: bool = False,
        known: Collection[str] | None = None,
    ) -> dict[Switch, bool]:
        """Set these switches of a queue; ``known`` are the existing queues, if they were loaded."""
        names.check("queue", queue)
        if not on and not force:
            known = await self.names() if known is None else known
            if queue not in known:
                raise UnknownQueue(queue, paused=True)
        store, now = self._app.store, self._app.clock.now()
        by = self._by_reason(reason)
        return {
            switch: await switch_ops.turn_queue(store, switch, queue, on=on, by=by, now=now)
            for switch in switches
        }

    async def names(self) -> set[str]:
        """Return the queues that have tasks, a switch, a type, a live worker or a setting."""
        app = self._app
        seconds = LIVE_LEASES * app.settings.lease
        stats, off = await app.store.views.stats(), await app.store.admin.switches()
        workers = await app.store.views.workers(live_within_seconds=seconds)
        return {
            *stats.by_queue,
            *stats.heads,
            *(setting.name for setting in off if setting.switch is not Switch.DRAIN),
            *(queue for worker in workers if worker.live for queue in worker.beat.queues),
            *named_here(app),
        }


def named_here(app: Holdfast) -> set[str]:
    """Return the queues that this process's code and settings name."""
    types = map(app.registry.find, app.registry.names())
    return {
        *OWN_QUEUES,
        *app.settings.queue_names,
        *(queue for queue in app.settings.backlog if queue != "*"),
        *(declared.queue for declared in types if declared is not None),
    }


def named_switches(queue: str, *, intake: bool, claiming: bool) -> tuple[Switch, ...]:
    """Return the switches that are named; none: both."""
    named = tuple(switch for switch, wanted in zip(BOTH, (intake, claiming), strict=True) if wanted)
    if not named and queue == notification.QUEUE:
        return (Switch.CLAIMING,)  # notifications cannot be refused
    return named or BOTH
