"""Tasks that were in several crashes in a row: each of them is run alone, so that the next crash
names the one that is to blame."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.ports import Claimed, Clock
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.worker.running_stages import GATE_SECONDS, RunningStages
from holdfast.runtime.worker.running_task import RunningTask

log = logging.getLogger("holdfast.worker")

IN_LINE_SECONDS = 10.0  # a suspect waits here for the one that runs; then it is put off
PUT_OFF_SECONDS = (1.0, 10.0, 60.0)  # at most, and half of it at least; the last one repeats
HAND_OVER_SECONDS = 30.0  # until then the lease is renewed here, too: the process has to start
REMEMBERED = 1_000  # tasks whose put-offs are counted

# Runs a claimed task in a process of its own, which renews the lease; it is good until then.
Isolate = Callable[[Claimed, float], Awaitable[None]]


class Suspects:
    def __init__(
        self,
        *,
        clock: Clock,
        chance: random.Random,
        company: RunningStages,
        isolate: Isolate | None,
        line_limit: int,
        hand_over: Callable[[RunningTask], None],
        run: Callable[[Claimed, RunningTask], Awaitable[None]],
        put_off: Callable[[Claimed, RunningTask, float], Awaitable[None]],
        note: Callable[[RunningTask], Awaitable[None]],
    ) -> None:
        """``line_limit``: so many may wait for an isolated one, each in a slot of others.
        ``hand_over``: another process renews the lease; ``note``: the store is told at once."""
        self._clock, self._chance = clock, chance
        self._company = company
        self._isolate = isolate
        self._hand_over = hand_over
        self._run = run
        self._put_off = put_off
        self._note = note
        self._isolated: RunningTask | None = None
        self._line_limit = line_limit
        self._in_line = 0
        self._put_offs: OrderedDict[str, int] = OrderedDict()

    async def run(self, claimed: Claimed, held: RunningTask) -> None:
        """Run it where nothing else runs, or later."""
        if self._company.suspect is held:  # this process is its own
            await self._run(claimed, held)
        elif not await self._comes_to_turn(held):
            seconds = self._next_put_off(held.task_id) if held.stop is None else 0.0
            await self._put_off(claimed, held, seconds)
        elif self._isolate is not None:
            await self._run_isolated(self._isolate, claimed, held)
        else:
            await self._run_alone(claimed, held)

    @property
    def _one_runs(self) -> bool:
        return self._isolated is not None or self._company.suspect is not None

    async def _comes_to_turn(self, held: RunningTask) -> bool:
        """Wait for the suspect that runs, but not for long: a slot and a tenant wait with it."""
        if self._isolated is not None and self._in_line >= self._line_limit:
            return False
        ends = self._clock.steady() + IN_LINE_SECONDS
        self._in_line += 1
        try:
            while self._one_runs and held.stop is None and self._clock.steady() < ends:
                await self._company.wait(self._clock)
        finally:
            self._in_line -= 1
        return not self._one_runs and held.stop is None

    async def _run_isolated(self, isolate: Isolate, claimed: Claimed, held: RunningTask) -> None:
        self._isolated = held
        handing_over = self._clock.call_later(HAND_OVER_SECONDS, lambda: self._hand_over(held))
        try:
            held.in_stage = held.ending = True  # it may be stopped, and ends by another's hand
            await isolate(claimed, held.safe_until)
        except OSError as error:
            log.error("task %s: a process of its own cannot be started: %s", held.task_id, error)
            await self._put_off(claimed, held, self._next_put_off(held.task_id))
        finally:
            handing_over.cancel()
            held.in_stage, self._isolated = False, None
            self._company.wake()

    async def _run_alone(self, claimed: Claimed, held: RunningTask) -> None:
        """In this process: nothing else begins meanwhile, but only for a while."""
        self._company.suspect = held
        opening = asyncio.create_task(self._open_after_a_while(held))
        try:
            log.warning(
                "task %s was in %d crashes in a row: nothing else begins in this process for up "
                "to %.0f s",
                held.task_id,
                claimed.task.crashes,
                GATE_SECONDS,
            )
            await self._company.until_free(held, self._clock, GATE_SECONDS)
            await self._run(claimed, held)
        finally:
            opening.cancel()
            self._company.release(held)

    async def _open_after_a_while(self, held: RunningTask) -> None:
        """The store knows that it is no longer alone before anything begins beside it."""
        await sleep(self._clock, GATE_SECONDS)
        held.note_company()
        with suppress(Exception):  # its run ends by the same reason
            await self._note(held)
        self._company.release(held)

    def _next_put_off(self, task_id: str) -> float:
        count = self._put_offs.pop(task_id, 0)
        self._put_offs[task_id] = count + 1
        if len(self._put_offs) > REMEMBERED:
            self._put_offs.popitem(last=False)
        longest = PUT_OFF_SECONDS[min(count, len(PUT_OFF_SECONDS) - 1)]
        return self._chance.uniform(longest / 2, longest)  # not all of them at once
