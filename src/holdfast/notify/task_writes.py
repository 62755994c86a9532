"""The writes of an app's tasks: they bring their deliveries, and end the waiting in this process.

Everything that writes through the engine's store (workers, operators, plan drivers, bulk actions)
passes here, so none of them has to think of either.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.errors import PartlyUnavailable
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.notify.notifier import Notifier, NotifyingPlans
from holdfast.ports import Store
from holdfast.ports.wrapped_store import WrappedStore
from holdfast.runtime.waiters import Waiters


class NotifyingTasks:
    """The task part of a store, whose writes bring deliveries and are shown to the waiters."""

    def __init__(self, store: Store, notifier: Notifier, waiters: Waiters) -> None:
        self._store, self._notifier, self._waiters = store, notifier, waiters
        tasks = store.tasks  # the verbs but one need no frame of ours
        self._apply = tasks.apply
        self.insert, self.claim, self.renew = tasks.insert, tasks.claim, tasks.renew
        self.leave, self.expire, self.promote = tasks.leave, tasks.expire, tasks.promote

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        store, notifier, waiters = self._store, self._notifier, self._waiters
        anyhow = bool(notifier.hooks)
        batch = [
            notifier.with_deliveries(store, one)
            if anyhow or one.after.callback is not None
            else one
            for one in batch
        ]
        sent = waiters.note_sent(batch) if waiters.awaited else ()
        try:
            outcomes = await self._apply(batch)
        except PartlyUnavailable as error:
            waiters.note_answers(batch, error.answers)
            raise
        else:
            if waiters.awaited:
                waiters.note_answers(batch, outcomes)
            return outcomes
        finally:
            if sent:
                waiters.note_end(sent)


def notifying(store: Store, notifier: Notifier, waiters: Waiters) -> Store:
    """Return the store through which an app and its workers write."""
    tasks, plans = NotifyingTasks(store, notifier, waiters), NotifyingPlans(store, notifier)
    return WrappedStore(store, tasks=tasks, plans=plans)
