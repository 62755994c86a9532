"""The meter counts how long stages took, and hands it to the store every few seconds."""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TypeAlias

from holdfast.domain.errors import StoreError, StoreUnavailable
from holdfast.ports import BUCKETS, Timings
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment

log = logging.getLogger("holdfast.meter")

OUTCOMES = DONE, FAILED, SNOOZED, UNDONE, UNDO_FAILED, OUTAGE, UNDO_OUTAGE = (
    "done",
    "failed",
    "snoozed",
    "undone",
    "undo-failed",
    "outage",
    "undo-outage",
)

FLUSH_SECONDS = 5.0
BATCH = 200
CELLS_LIMIT = 10_000  # of type, stage and outcome: no sane program declares more

Key: TypeAlias = tuple[str, str, str]  # type, stage, outcome


class Cell:
    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total_seconds = 0.0


class Meter:
    """The meter of one worker, on its loop."""

    def __init__(self, env: WorkerEnvironment) -> None:
        self._store, self._clock, self._outages = env.store, env.clock, env.outages
        self._cells: dict[Key, Cell] = {}
        self._is_logged = False

    def add(self, task_type: str, stage: str, outcome: str, seconds: float) -> None:
        key = task_type, stage, outcome
        cell = self._cells.get(key) or self._new(key)
        cell.counts[bisect_left(BUCKETS, seconds)] += 1
        cell.total_seconds += seconds

    def _new(self, key: Key) -> Cell:
        cell = Cell()
        if len(self._cells) < CELLS_LIMIT:
            self._cells[key] = cell
        elif not self._is_logged:
            self._is_logged = True
            log.warning("more than %d kinds of stages: further ones are not timed", CELLS_LIMIT)
        return cell

    async def run(self) -> None:
        while True:
            await sleep(self._clock, FLUSH_SECONDS)
            await self.flush()

    async def stop(self) -> None:
        """Flush for the last time; an error does not keep the worker from leaving."""
        try:
            await self.flush()
        except Exception:
            log.exception("the times of the last stages are lost")

    async def flush(self) -> None:
        """Hand the counts to the store. What it surely has not taken is kept for the next time.

        Where nobody can tell, as when the answer was lost or this was stopped on the way, the
        counts are dropped: to count too little does no harm, to count twice does.
        """
        keys = list(self._cells)
        for start in range(0, len(keys), BATCH):
            taken = {key: self._cells.pop(key) for key in keys[start : start + BATCH]}
            try:
                await self._store.admin.observe(
                    [_timings(key, cell) for key, cell in taken.items()]
                )
            except StoreError as error:
                if isinstance(error, StoreUnavailable) and error.unwritten:
                    self._put_back(taken)
                self._outages.note(error)
                return

    def _put_back(self, taken: dict[Key, Cell]) -> None:
        """Add what was not taken to what stages have counted meanwhile."""
        for key, cell in taken.items():
            newer = self._cells.setdefault(key, cell)
            if newer is not cell:
                newer.counts = [a + b for a, b in zip(newer.counts, cell.counts, strict=True)]
                newer.total_seconds += cell.total_seconds


def _timings(key: Key, cell: Cell) -> Timings:
    task_type, stage, outcome = key
    return Timings(
        type=task_type,
        stage=stage,
        outcome=outcome,
        counts=tuple(cell.counts),
        total_seconds=cell.total_seconds,
    )
