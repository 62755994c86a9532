"""What a worker notes of a stage before it calls it: where its own death does not erase it."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.domain.errors import StoreError
from holdfast.ports import Beat, Clock, Store
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.worker.attempt import LeaseGone
from holdfast.runtime.worker.outages import StoreOutages
from holdfast.runtime.worker.running_task import RunningTask

AGAIN_SECONDS = 0.25


class StageNotes:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        outages: StoreOutages,
        describe: Callable[[], Beat],
        lease_seconds: float,
        safe_until: Callable[[float], float],
    ) -> None:
        self._store = store
        self._clock = clock
        self._outages = outages
        self._describe = describe
        self._lease_seconds = lease_seconds
        self._safe_until = safe_until

    async def write(self, held: RunningTask) -> None:
        """Tell the store what a stage says of itself, without waiting for the next beat."""
        while (asked_at := self._clock.steady()) < held.safe_until:
            try:
                (kept,) = await self._store.renew(
                    self._describe(), [held.renewal()], lease_seconds=self._lease_seconds
                )
            except StoreError as error:
                self._outages.note(error)
                held.progress_is_new = True
                await sleep(self._clock, AGAIN_SECONDS)
                continue
            if not kept:
                break
            held.safe_until = self._safe_until(asked_at)
            return
        raise LeaseGone(held.task_id)
