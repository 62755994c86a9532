"""The partitions of a store: the keys of each, how its scripts are run, and which one has a task.

A single server or Sentinel has one partition, a Cluster has many.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time as clocks
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import msgspec

from holdfast.domain.errors import InvalidInput, PartlyUnavailable, StoreError
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Submission
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import RedisClient, Script, ServerTime, by_name
from holdfast.stores.redis.client.faults import CommandDenied
from holdfast.stores.redis.keys import DENIED, TORN, KeyNames, number_of

TOMBSTONE_SECONDS = 24 * 3600
LOCK_SECONDS = 9000
CHECKPOINT_SECONDS = 7 * 86_400
FORMAT = 1  # of what is stored
EMPTIED = (
    "the store was emptied, or its key meta was removed: by FLUSHALL or FLUSHDB, by a restart "
    "without its data, or by a maxmemory-policy that evicts. Tasks that are gone were not done; "
    "submit them again with the same keys"
)
LATE_SECONDS = 1.0  # a call that takes longer was held up by the server or the network
# Elements of one script: it keeps the server from everything else for 5 ms at most.
BATCH = 50  # submits, or records read
CLAIMS = 64
MOVES = 24  # transitions, each of which may start the next task of a tenant's line

log = logging.getLogger("holdfast.stores.redis.partition")

_OF_A_TRIGGER = re.compile(r"[^@]+\.p([0-9]{2,4})@")

T = TypeVar("T")
U = TypeVar("U")
# The two times of a clock: one for leases and due times, one for everything else.
Time = Callable[[], tuple[float, float]]


class RetentionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds for which locks, checkpoints and tombstones are kept."""

    lock_seconds: int = LOCK_SECONDS
    checkpoint_seconds: int = CHECKPOINT_SECONDS
    tombstone_seconds: int = TOMBSTONE_SECONDS


class Partition:
    """One partition: its keys, the time of its server, and the calls of its scripts.

    A test may pass its own clock as ``time``, which then replaces the server's.
    """

    def __init__(
        self,
        client: RedisClient,
        keys: KeyNames,
        terms: RetentionTerms,
        time: Time | None = None,
        steady: Callable[[], float] = clocks.monotonic,
    ) -> None:
        self.client, self.keys, self.terms = client, keys, terms
        self._time, self.steady = time, steady
        self._ahead: float | None = None  # the server's time minus our steady one, as last learned
        self._strangers: set[str] = set()  # keys of other programs that were logged
        self._writes = 0  # the server's count of writes in its last answer
        self.partitions = 1  # how many the store has
        self.straight = client.address.straight  # what goes well takes the straight path
        # The server's time at which a script was stopped half-way.
        self.torn_at: float | None = None

    async def call(self, script: Script, *args: str | bytes | float, again: bool = True) -> Any:
        try:
            return await self.client.call(script, self.keys, [self.now(), *args], repeatable=again)
        except CommandDenied:
            await self._mark_torn()
            raise

    async def call_in_batches(self, script: Script, names: Sequence[str]) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, len(names), BATCH):
            answers += await self.call(script, *names[start : start + BATCH])
        return answers

    def note_torn(self) -> float:
        """Remember that a command was refused inside a script: see `torn_writes.py`."""
        ahead = self._ahead or 0.0
        self.torn_at = self._time()[0] if self._time is not None else self.steady() + ahead
        return self.torn_at

    async def _mark_torn(self) -> None:
        """Mark the partition for the workers, too: this process may have no sweeps, or end."""
        marked = "HSET", self.keys("meta"), "tornAt", f"{self.note_torn():.6f}"
        with suppress(StoreError):
            await self.client.many(self.keys, [marked])

    async def write(self, script: Script, *args: str | bytes | float) -> Any:
        """Run a script that writes, and compare the server's count of writes with the last one."""
        answered = self._writes
        reply = by_name(await self.call(script, *args))
        if len(reply) == 1:  # it wrote nothing
            return reply["answer"]
        writes, written = reply["writes"], reply["written"]
        if reply["notices"]:
            await self._handle_notices(reply["notices"])
        before = writes - written
        if written and before < answered:
            await self._note_loss(answered, before)
        elif written:
            self._writes = max(self._writes, writes)
        return reply["answer"]

    async def _handle_notices(self, notices: Sequence[bytes]) -> None:
        """Log each key of another program once, and note that a script was torn."""
        names = {name.decode(errors="replace") for name in notices}
        if DENIED in names:
            names.remove(DENIED)
            await self._mark_torn()
        if TORN in names:
            names.remove(TORN)
            if self.torn_at is None:
                self.note_torn()
        for name in sorted(names - self._strangers):
            log.error(
                "%s holds something of another program, so Holdfast stores nothing there; "
                "rename that key, then run `holdfast doctor --fix`",
                name,
            )
        self._strangers |= names

    async def _note_loss(self, answered: int, before: int) -> None:
        try:
            reply = by_name(await self.call(scripts.LOST_WRITES, answered, before))
        except StoreError:
            return  # the next write will notice
        lost, self._writes = reply["lost"], reply["writes"]
        if lost:
            log.error(
                "%s: %d writes that had been answered are gone: a failover or a restart lost them",
                self.keys.prefix,
                lost,
            )

    async def note_emptied(self) -> None:
        """Log that the store was emptied while it was open, and create its key meta again."""
        if await self.call(scripts.RECREATE_META, FORMAT, self.partitions):
            log.critical("%s: %s", self.keys.prefix, EMPTIED)

    async def refresh_time(self) -> None:
        """Ask the server for its time."""
        asked_at = self.steady()
        self.learn_time((await self.server_time()).now, asked_at)

    async def server_time(self) -> ServerTime:
        reply = by_name(await self.call(scripts.CLOCK))
        return ServerTime(float(reply["now"]), float(reply["wall"]))

    def give_up_time(self) -> str:
        """Return the server's time shortly before the client gives up a call that it sends now."""
        if self._time is not None or self._ahead is None:
            return ""
        return f"{self.steady() + self._ahead + 0.9 * self.client.address.timeout_seconds:.6f}"

    def learn_time(self, server_now: float, asked_at: float) -> None:
        """Take the server's time as that of before the call, which makes leases longer."""
        self._ahead = server_now - asked_at

    def now(self) -> str:
        """Return the time argument of a script: by when it should have run, or a test's time.

        The script itself takes the time from the server (shared/time.lua).
        """
        if self._time is not None:
            return "{:.6f} {:.6f}".format(*self._time())
        if self._ahead is None:
            return ""
        return f"by {self.steady() + self._ahead + LATE_SECONDS:.6f}"


# -- all partitions


class Partitions:
    """All partitions of a store: one on a single server or Sentinel, many in a Cluster."""

    def __init__(self, parts: Sequence[Partition]) -> None:
        self._parts = list(parts)
        self.first = self._parts[0]  # keeps what belongs to no task

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def partitioned_id(self, task_id: str, *, tenant: str | None, key: str | None) -> str:
        """Return the id with the number of the partition that follows from tenant, key or id."""
        if len(self) == 1:
            return task_id
        return f"{task_id}.p{number_of(self._number_of(tenant, key, task_id))}"

    def colocated_id(self, name: str, part: Partition) -> str:
        """Return an id in this partition for a task that has neither tenant nor key."""
        return name if len(self) == 1 else f"{name}{self._ending(part)}"

    def _ending(self, part: Partition) -> str:
        return f".p{number_of(self._parts.index(part))}"

    def _number_of(self, tenant: str | None, key: str | None, task_id: str) -> int:
        """Return the number of the partition in which a task belongs.

        A trigger's task belongs in the trigger's partition: its key begins with the trigger's id,
        which ends with the partition (`nightly.p03@…`).
        """
        if tenant is None and key is not None and (match := _OF_A_TRIGGER.match(key)):
            number = int(match[1])
            if number < len(self):
                return number
        return self._number(tenant or key or task_id)

    def _number(self, name: str) -> int:
        return zlib.crc32(name.encode()) % len(self)

    def of_trigger(self, trigger_id: str) -> Partition | None:
        """Return the partition of a trigger, or None if this is not an id of a trigger.

        The keys of its tasks contain the id, so the partition's number must be written exactly as
        this store writes it.
        """
        part = self.of_task(trigger_id)
        if part is None or len(self) == 1:
            return part
        return part if trigger_id.endswith(self._ending(part)) else None

    def of_plan(self, plan_id: str) -> Partition:
        return self._parts[self._number(plan_id)]

    def of_tenant(self, tenant: str) -> Partition:
        return self._parts[self._number(tenant)]

    def of_task(self, task_id: str) -> Partition | None:
        """Return the partition that the id names, or None if no task here can have that id."""
        if len(self) == 1:
            return self.first
        match = re.search(r"\.p([0-9]+)$", task_id)
        number = int(match[1]) if match else -1
        return self._parts[number] if 0 <= number < len(self) else None

    def with_id(self, task_id: str) -> Partition:
        """Return the partition that the id names, or raise `InvalidInput`."""
        part = self.of_task(task_id)
        if part is None:
            raise _foreign_id(task_id)
        return part

    def with_task(self, task: Task) -> Partition:
        """Return the task's partition; raise `InvalidInput` if tenant or key put it elsewhere."""
        part, expected_id = self.of_task(task.id), task.id
        if len(self) > 1:
            expected_id = self.partitioned_id(
                task.id.rpartition(".p")[0], tenant=task.tenant, key=task.key
            )
        if part is None or expected_id != task.id:
            raise _foreign_id(task.id)
        return part

    def with_colocated_task(self, task: Task) -> Partition:
        """Return the task's partition; a task without tenant and key may have a colocated id."""
        if task.tenant is not None or task.key is not None:
            return self.with_task(task)
        part = self.with_id(task.id)
        if len(self) > 1 and not task.id.endswith(self._ending(part)):
            raise _foreign_id(task.id)
        return part

    def with_follows(self, part: Partition, follows: Iterable[Submission]) -> Partition:
        """Check that the tasks that follow live in the same partition: all are one step."""
        for submission in follows:
            if self.with_colocated_task(submission.task) is not part:
                raise InvalidInput(
                    f"task id {submission.task.id!r} is not in the partition of what it "
                    "follows from"
                )
        return part

    def rotated_from(self, name: str) -> list[Partition]:
        """Return all partitions, beginning with the one that follows from the name."""
        start = self._number(name)
        return self._parts[start:] + self._parts[:start]

    async def spread(
        self,
        batch: Sequence[T],
        part_of: Callable[[T], Partition | None],
        ask_part: Callable[[Partition, list[T]], Awaitable[Sequence[U]]],
        otherwise: Callable[[T], U],
    ) -> list[U]:
        """Ask the partition of each element, and return the answers in the order of the batch."""
        if len(self._parts) == 1:
            return list(await ask_part(self._parts[0], list(batch))) if batch else []
        positions: defaultdict[Partition, list[int]] = defaultdict(list)
        answers: dict[int, U] = {}
        for position, element in enumerate(batch):
            part = part_of(element)
            if part is None:
                answers[position] = otherwise(element)
            else:
                positions[part].append(position)
        calls = (ask_part(part, [batch[i] for i in indexes]) for part, indexes in positions.items())
        results, missed = await try_all(calls)
        for indexes, part_answers in zip(positions.values(), results, strict=True):
            answers.update(zip(indexes, _answers_of(part_answers, len(indexes)), strict=True))
        answered = [answers[position] for position in range(len(batch))]
        if missed is not None:
            raise PartlyUnavailable(missed, answered)
        return answered


def _foreign_id(task_id: str) -> InvalidInput:
    return InvalidInput(f"task id {task_id!r} was not made by this store's partitioned_id()")


def _answers_of(result: Sequence[Any] | StoreError, number: int) -> Sequence[Any]:
    if isinstance(result, PartlyUnavailable):
        return result.answers
    return [result] * number if isinstance(result, StoreError) else result


def fail_without_partition(element: object) -> NoReturn:
    """Raise an error for an element that always has a partition."""
    raise AssertionError(f"{element} has no partition")


async def try_all(calls: Iterable[Awaitable[T]]) -> tuple[list[T | StoreError], StoreError | None]:
    """Return the answers with errors in their places, and the last error.

    If every call failed as a whole, the error is raised instead.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    answers: list[T | StoreError] = []
    missed: StoreError | None = None
    for result in results:
        if isinstance(result, StoreError):
            missed = result
        elif isinstance(result, BaseException):
            raise result
        answers.append(result)
    whole_failures = sum(
        isinstance(result, StoreError) and not isinstance(result, PartlyUnavailable)
        for result in results
    )
    if missed is not None and whole_failures == len(results):
        raise missed
    return answers, missed


async def gather_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for every answer, then raise the first error: no call is left running."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def unless_failed(answers: Sequence[T | StoreError]) -> list[T]:
    """Return the answers, or raise the error of those that failed."""
    errors = [answer for answer in answers if isinstance(answer, StoreError)]
    if not errors:
        return [answer for answer in answers if not isinstance(answer, StoreError)]
    raise errors[0] if len(errors) == len(answers) else PartlyUnavailable(errors[0], answers)


async def all_at_once(calls: Iterable[Awaitable[Sequence[T]]]) -> list[T]:
    """Send the calls one behind the other on one connection, and join their answers.

    The server need not wait for us between them. If one call fails, the whole fails, and the
    caller may repeat them all.
    """
    first, *others = calls
    if not others:
        return list(await first)
    answers = await asyncio.gather(first, *others)
    return [answer for batch in answers for answer in batch]


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the elements in groups of a size; the last group may be smaller."""
    return (items[start : start + size] for start in range(0, len(items), size))
