"""The task part of a store, whose answered writes end the waiting in their own process."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.errors import PartlyUnavailable
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.ports import Store
from holdfast.ports.wrapped_store import WrappedStore
from holdfast.runtime.waiters import Waiters


class AnsweredTasks:
    """The task part of a store, which shows the waiters each write that the store has answered."""

    def __init__(self, store: Store, waiters: Waiters) -> None:
        tasks = store.tasks  # the verbs but one need no frame of ours
        self._apply, self._waiters = tasks.apply, waiters
        self.insert, self.claim, self.renew = tasks.insert, tasks.claim, tasks.renew
        self.leave, self.expire, self.promote = tasks.leave, tasks.expire, tasks.promote

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        sent = self._waiters.note_sent(batch)
        try:
            outcomes = await self._apply(batch)
        except PartlyUnavailable as error:
            self._waiters.note_answers(batch, error.answers)
            raise
        else:
            self._waiters.note_answers(batch, outcomes)
            return outcomes
        finally:
            if sent:
                self._waiters.note_end(sent)


def answering(store: Store, waiters: Waiters) -> Store:
    """Return the store whose writes end the waiting for what they have settled or suspended."""
    return WrappedStore(store, tasks=AnsweredTasks(store, waiters))
