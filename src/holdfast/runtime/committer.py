"""Group commit: while writes are under way, the next ones gather behind them.

`Gather` batches any calls of a store; `Committer` is the one through which the runs of a worker
write, again and again through an outage.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

from holdfast.domain.errors import PartlyUnavailable, SerialisationError, StoreError
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.runtime.deadlines import back_off
from holdfast.runtime.environment import WorkerEnvironment

T = TypeVar("T")
R = TypeVar("R")

BATCH_LIMIT = 200
WORTH_A_WRITE = 32  # items, while another write is under way: each write has a price of its own


class Gather(Generic[T, R]):
    """Send single items in batches: no added latency when idle, hundreds at once under load.

    A store that is out of reach fails each item of the batch; to try again is the caller's
    business. Any other error is one item's own, and only that one fails.

    With two batches ``under_way``, the store works at one while the other is made or answered. The
    second goes when enough items wait; one of them may be written before an item given earlier.
    """

    def __init__(
        self, send: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, under_way: int = 1
    ) -> None:
        self._send, self._under_way = send, under_way
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._sending = 0  # the batches under way: a sender that has none takes what waits
        self._loop: asyncio.AbstractEventLoop  # the senders'; to ask for it costs a system call

    def __call__(self, item: T) -> asyncio.Future[R]:
        """Return the answer to be awaited; a caller that is cancelled may have sent it or not."""
        senders = len(self._senders)
        if not senders:
            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = self._loop.create_future()
        self._waiting.append((item, future))
        if senders == self._sending and (not senders or self._is_worth_another()):
            self._senders.add(self._loop.create_task(self._send_all()))
        return future

    def _is_worth_another(self) -> bool:
        return self._sending < self._under_way and len(self._waiting) >= WORTH_A_WRITE

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                count = min(len(self._waiting), BATCH_LIMIT)
                batch = [self._waiting.popleft() for _ in range(count)]
                self._sending += 1
                try:
                    await self._send_batch(batch)
                finally:
                    self._sending -= 1
        finally:
            self._senders.remove(cast("asyncio.Task[None]", asyncio.current_task()))
            while self._waiting and not self._senders:  # it was cancelled: nobody sends these
                self._waiting.popleft()[1].cancel()

    async def _send_batch(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        wanted = [(item, future) for item, future in batch if not future.cancelled()]
        if not wanted:
            return
        try:
            answers = await self._send([item for item, _ in wanted])
        except PartlyUnavailable as error:
            answers = error.answers
        except StoreError as error:
            _fail(wanted, error)
            return
        except Exception as error:
            if len(wanted) == 1:
                _fail(wanted, error)
                return
            for item in wanted:  # one of them spoils it; a repeat of the others does no harm
                await self._send_batch([item])
            return
        except BaseException:  # the sender was cancelled: whether it was written, nobody can tell
            for _, future in wanted:
                future.cancel()
            raise
        for item, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, StoreError):
                _fail([item], answer)
            elif not item[1].done():
                item[1].set_result(answer)


class Committer:
    """The only way by which the runs of a worker write."""

    def __init__(self, env: WorkerEnvironment) -> None:
        self._store, self._clock, self._chance = env.store, env.clock, env.chance
        self._outages = env.outages
        self._write = Gather[Transition, Outcome](env.store.tasks.apply, under_way=2)

    async def write(self, transition: Transition) -> Outcome:
        """Write through an outage, which fails no stage: the same write again, until the lease's
        own time is up and the run is stopped."""
        write, tries = self._write, 0
        while True:
            try:
                return await write(transition)
            except SerialisationError:
                # A batch may fail for another's record: only alone it is known to be for ours.
                if write is not self._write:
                    raise  # it would be answered for ever
                write = Gather(self._store.tasks.apply)
                continue
            except StoreError as error:
                self._outages.note(error)
            tries += 1
            await back_off(self._clock, self._chance, tries)


def _fail(batch: Sequence[tuple[T, asyncio.Future[R]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
