"""A group holds the workers of this process: one for `holdfast worker`, any number for `holdfast
serve`.

Python cannot stop a thread. When a plain function must not continue, its task is given back or its
lease lapses, and the process ends at once.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from typing import NoReturn

from holdfast.cli.exit_codes import Exit
from holdfast.cli.process.lifecycle import LAST_WORD_SECONDS, end, end_soon
from holdfast.engine import Holdfast
from holdfast.engine.orphans import warn_of_orphans
from holdfast.ports import Claimed
from holdfast.runtime.worker.running_tasks import RunningTask
from holdfast.runtime.worker.suspects import Isolate

LOST_LEASE = 70  # a plain function runs on without its lease: only the end of the process stops it
GIVE_BACK_SECONDS = 2.0

log = logging.getLogger("holdfast.cli.worker")


class WorkerGroup:
    """The workers of one process, on an open app."""

    def __init__(
        self,
        app: Holdfast,
        *,
        count: int,
        slots: int | None,
        queues: tuple[str, ...] | None,
        isolate: Isolate | None = None,
    ) -> None:
        self._app = app
        self._queues = queues
        self._loop = asyncio.get_running_loop()
        self._at_work = count
        self.all_drained = asyncio.Event()  # somebody drained every worker
        self._workers = [
            app.worker(
                slots=slots,
                queues=queues,
                on_zombie=self._end_with,
                on_drained=self._count_drained,
                isolate=isolate,
            )
            for _ in range(count)
        ]

    async def start(self) -> None:
        if self._workers:
            app = self._app
            await warn_of_orphans(app.store, app.clock, lease_seconds=app.settings.lease)
        for worker in self._workers:
            log.info(
                "worker %s: store %s, queues %s, types %s",
                worker.name,
                self._app.store.url,
                ",".join(self._queues or self._app.settings.queue_names),
                ",".join(self._app.registry.names()) or "none",
            )
            await worker.start()

    async def take(self, claimed: Claimed, *, safe_until: float) -> asyncio.Task[None]:
        """Run a task that another process has claimed, and nothing else."""
        (worker,) = self._workers
        return await worker.take(claimed, safe_until=safe_until)

    async def drain(self, urgent: asyncio.Event) -> None:
        """Drain all workers; ``urgent`` gives their tasks back at once. The process ends if plain
        functions still run.
        """
        if not self._workers:
            return
        log.info("%s drains; a second signal gives its tasks back at once", self._names())
        drain = asyncio.gather(*(worker.drain() for worker in self._workers))
        hurry = asyncio.create_task(urgent.wait())
        await asyncio.wait((drain, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not drain.done():
            await self._end_giving_back(Exit.FAILED)
        hurry.cancel()
        if left := [task_id for ids in drain.result() for task_id in ids]:
            log.warning("plain functions still run; their tasks are given back: %s", left)
            await self._end_giving_back(Exit.OK)
        log.info("%s has stopped", self._names())

    def _names(self) -> str:
        return "worker " + ", ".join(worker.name for worker in self._workers)

    def _count_drained(self) -> None:
        self._at_work -= 1
        if self._at_work == 0:
            self.all_drained.set()

    async def _give_back(self, but: RunningTask | None = None) -> None:
        await asyncio.gather(*(worker.give_back_all(but=but) for worker in self._workers))

    async def _end_giving_back(self, code: int) -> NoReturn:
        """Give the tasks back, and end the process."""
        try:
            async with asyncio.timeout(GIVE_BACK_SECONDS):
                await self._give_back()
        except Exception as error:
            log.error("could not give tasks back, their leases will lapse: %s", error)
        end(code)

    def _end_with(self, held: RunningTask) -> NoReturn:
        """End the process from a heartbeat's thread, while the workers' loop gives their tasks
        back.
        """
        end_soon(LOST_LEASE, GIVE_BACK_SECONDS + LAST_WORD_SECONDS)
        giving: Future[None] = asyncio.run_coroutine_threadsafe(self._give_back(held), self._loop)
        try:
            giving.result(timeout=GIVE_BACK_SECONDS)
        except Exception as error:
            log.error("could not give tasks back, their leases will lapse: %r", error)
        log.critical(
            "task %s: the lease is lost while a plain function runs; this process ends, so that "
            "the function does not run beside another worker",
            held.task_id,
        )
        end(LOST_LEASE)
