"""Suspects are tasks that were in several crashes in a row: each of them is run alone, so that the
next crash names the one that is to blame."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.domain.backoff import shorten
from holdfast.ports import Claimed
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.environment import WorkerEnvironment
from holdfast.runtime.worker.running_tasks import GATE_SECONDS, RunningStages, RunningTask

log = logging.getLogger("holdfast.worker")

IN_LINE_SECONDS = 10.0  # a suspect waits here for the one that runs; then it is put off
PUT_OFF_SECONDS = (1.0, 10.0, 60.0)  # the longest pauses, up to a half shorter; the last repeats
HAND_OVER_SECONDS = 30.0  # until then the lease is renewed here, too: the process has to start
REMEMBERED = 1_000  # tasks whose put-offs are counted

# Runs a claimed task in a process of its own, which renews the lease; it is good until then.
Isolate = Callable[[Claimed, float], Awaitable[None]]


class Suspects:
    def __init__(
        self,
        env: WorkerEnvironment,
        *,
        stages: RunningStages,
        isolate: Isolate | None,
        run: Callable[[Claimed, RunningTask], Awaitable[None]],
        put_off: Callable[[Claimed, RunningTask, float], Awaitable[None]],
        renew_now: Callable[[RunningTask], Awaitable[None]],
    ) -> None:
        """Run suspects; ``renew_now`` tells the store at once what a task reports."""
        self._clock, self._chance = env.clock, env.chance
        self._stages, self._isolate = stages, isolate
        self._run, self._put_off, self._renew_now = run, put_off, renew_now
        self._isolated: RunningTask | None = None
        self._line_limit = env.options.slots // 2  # suspects may wait, each in a slot of others
        self._in_line = 0
        self._put_offs: OrderedDict[str, int] = OrderedDict()

    async def run(self, claimed: Claimed, running: RunningTask) -> None:
        """Run a suspect where nothing else runs, or put it off."""
        if self._stages.suspect is running:  # this process is its own
            await self._run(claimed, running)
        elif not await self._wait_for_turn(running):
            seconds = self._put_off_seconds(running.task_id) if running.stop is None else 0.0
            await self._put_off(claimed, running, seconds)
        elif self._isolate is not None:
            await self._run_isolated(self._isolate, claimed, running)
        else:
            await self._run_alone(claimed, running)

    @property
    def _is_taken(self) -> bool:
        return self._isolated is not None or self._stages.suspect is not None

    async def _wait_for_turn(self, running: RunningTask) -> bool:
        """Wait for the suspect that runs, but not for long: a slot and a tenant wait with it."""
        if self._isolated is not None and self._in_line >= self._line_limit:
            return False
        ends = self._clock.steady() + IN_LINE_SECONDS
        self._in_line += 1
        try:
            while self._is_taken and running.stop is None and self._clock.steady() < ends:
                await self._stages.wait(self._clock)
        finally:
            self._in_line -= 1
        return not self._is_taken and running.stop is None

    async def _run_isolated(self, isolate: Isolate, claimed: Claimed, running: RunningTask) -> None:
        self._isolated = running
        handing_over = self._clock.call_later(HAND_OVER_SECONDS, lambda: _hand_over(running))
        try:
            running.in_stage = running.ending = (
                True  # it may be stopped, and ends by another's hand
            )
            await isolate(claimed, running.safe_until)
        except OSError as error:
            log.error("task %s: a process of its own cannot be started: %s", running.task_id, error)
            await self._put_off(claimed, running, self._put_off_seconds(running.task_id))
        finally:
            handing_over.cancel()
            running.in_stage, self._isolated = False, None
            self._stages.wake()

    async def _run_alone(self, claimed: Claimed, running: RunningTask) -> None:
        """Run a suspect in this process; for a while nothing else begins here."""
        self._stages.suspect = running
        ending = asyncio.create_task(self._end_isolation_later(running))
        try:
            log.warning(
                "task %s was in %d crashes in a row: nothing else begins in this process for up "
                "to %.0f s",
                running.task_id,
                claimed.task.crashes,
                GATE_SECONDS,
            )
            await self._stages.until_free(running, self._clock, GATE_SECONDS)
            await self._run(claimed, running)
        finally:
            ending.cancel()
            self._stages.release(running)

    async def _end_isolation_later(self, running: RunningTask) -> None:
        """Let others begin after a while; the store knows before that the suspect is not alone."""
        await sleep(self._clock, GATE_SECONDS)
        running.note_company()
        with suppress(Exception):  # its run ends by the same reason
            await self._renew_now(running)
        self._stages.release(running)

    def _put_off_seconds(self, task_id: str) -> float:
        count = self._put_offs.pop(task_id, 0)
        self._put_offs[task_id] = count + 1
        if len(self._put_offs) > REMEMBERED:
            self._put_offs.popitem(last=False)
        longest = PUT_OFF_SECONDS[min(count, len(PUT_OFF_SECONDS) - 1)]
        return shorten(longest, self._chance.random())  # not all of them at once


def _hand_over(running: RunningTask) -> None:
    """Leave the renewal of a lease to the process that runs the task."""
    running.is_renewed = False
