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
LATE_SECONDS = 1.0  # on its way: the server, or the way to it, has stood still
# Elements of one script: the server does nothing else meanwhile, for 5 ms at most.
BATCH = 50  # submits, or looks
CLAIMS = 64
MOVES = 24  # those that finish or take back, with a tenant's line behind each

log = logging.getLogger("holdfast.stores.redis.partition")

_OF_A_TRIGGER = re.compile(r"[^@]+\.p([0-9]{2,4})@")

T = TypeVar("T")
U = TypeVar("U")
Time = Callable[[], tuple[float, float]]  # for leases and due times; for everything else


class RetentionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds for which locks, checkpoints and tombstones are kept."""

    lock_seconds: int = LOCK_SECONDS
    checkpoint_seconds: int = CHECKPOINT_SECONDS
    tombstone_seconds: int = TOMBSTONE_SECONDS


class Partition:
    """One partition of the store; a test gives ``time`` to replace the server's clock."""

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
        self._ahead: float | None = None  # the server's time minus our steady one, as last heard
        self._strangers: set[str] = set()
        self._writes = 0  # of the server, as far as it was answered
        self.partitions = 1  # of the store
        self.torn_at: float | None = None  # by the server's time: a script was stopped half-way

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
        """Tell the workers, too: this process may have no sweeps, or end."""
        marked = "HSET", self.keys("meta"), "tornAt", f"{self.note_torn():.6f}"
        with suppress(StoreError):
            await self.client.many(self.keys, [marked])

    async def write(self, script: Script, *args: str | bytes | float) -> Any:
        """A call whose answer tells how much had been written before it."""
        answered = self._writes
        answer, writes, written, *told = await self.call(script, *args)
        if told and told[0]:
            await self._tell(told[0])
        before = writes - written
        if written and before < answered:
            await self._note_loss(answered, before)
        elif written:
            self._writes = max(self._writes, writes)
        return answer

    async def _tell(self, told: Sequence[bytes]) -> None:
        """Keys of another program where our indexes belong; once for each."""
        names = {name.decode(errors="replace") for name in told}
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
        """Say that the store was emptied under us, and make it one again: see recreate_meta.lua."""
        if await self.call(scripts.RECREATE_META, FORMAT, self.partitions):
            log.critical("%s: %s", self.keys.prefix, EMPTIED)

    async def hear(self) -> None:
        """Learn the server's time."""
        asked_at = self.steady()
        self.learn_time((await self.server_time()).now, asked_at)

    async def server_time(self) -> ServerTime:
        reply = by_name(await self.call(scripts.CLOCK))
        return ServerTime(float(reply["now"]), float(reply["wall"]))

    def gives_up(self) -> str:
        """Shortly before, by the server's time, a call sent now is not waited for any more."""
        if self._time is not None or self._ahead is None:
            return ""
        return f"{self.steady() + self._ahead + 0.9 * self.client.address.timeout_seconds:.6f}"

    def learn_time(self, server_now: float, asked_at: float) -> None:
        """Learn the server's time as of before it was asked, which makes leases longer."""
        self._ahead = server_now - asked_at

    def now(self) -> str:
        """Return the time for the scripts.

        They have the server's, and learn from us by when they should have been run
        (shared/time.lua).
        """
        if self._time is not None:
            return "{:.6f} {:.6f}".format(*self._time())
        if self._ahead is None:
            return ""
        return f"by {self.steady() + self._ahead + LATE_SECONDS:.6f}"


# -- all partitions


class Partitions:
    """One on a single server or behind Sentinel, many in a Cluster."""

    def __init__(self, parts: Sequence[Partition]) -> None:
        self._parts = list(parts)
        self.first = self._parts[0]  # what belongs to no task is kept there

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def home(self, task_id: str, *, tenant: str | None, key: str | None) -> str:
        if len(self) == 1:
            return task_id
        return f"{task_id}.p{number_of(self._number_of(tenant, key, task_id))}"

    def beside(self, name: str, part: Partition) -> str:
        """Return an id in this partition for a task that has neither tenant nor key."""
        return name if len(self) == 1 else f"{name}{self._ending(part)}"

    def _ending(self, part: Partition) -> str:
        return f".p{number_of(self._parts.index(part))}"

    def _number_of(self, tenant: str | None, key: str | None, task_id: str) -> int:
        """A trigger's task lives where the trigger does: its key begins with the trigger's id,
        which ends with the partition (`nightly.p03@…`)."""
        if tenant is None and key is not None and (by_name := _OF_A_TRIGGER.match(key)):
            number = int(by_name[1])
            if number < len(self):
                return number
        return self._number(tenant or key or task_id)

    def _number(self, name: str) -> int:
        return zlib.crc32(name.encode()) % len(self)

    def of_trigger(self, trigger_id: str) -> Partition | None:
        """Return the partition of a trigger, or None if this is no id but at most a name.

        Ids of tasks are made from it, so there is only one way to write the partition's number.
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
        """Return the partition of a task, or None if no task here can have that id."""
        if len(self) == 1:
            return self.first
        found = re.search(r"\.p([0-9]+)$", task_id)
        number = int(found[1]) if found else -1
        return self._parts[number] if 0 <= number < len(self) else None

    def with_id(self, task_id: str) -> Partition:
        part = self.of_task(task_id)
        if part is None:
            raise _not_from_home(task_id)
        return part

    def with_task(self, task: Task) -> Partition:
        part, own = self.of_task(task.id), task.id
        if len(self) > 1:
            own = self.home(task.id.rpartition(".p")[0], tenant=task.tenant, key=task.key)
        if part is None or own != task.id:
            raise _not_from_home(task.id)
        return part

    def with_any(self, task: Task) -> Partition:
        """The same of one that may have come to be beside another: without tenant and key it is
        at home wherever its id says."""
        if task.tenant is not None or task.key is not None:
            return self.with_task(task)
        part = self.with_id(task.id)
        if len(self) > 1 and not task.id.endswith(self._ending(part)):
            raise _not_from_home(task.id)
        return part

    def with_follows(self, part: Partition, follows: Iterable[Submission]) -> Partition:
        """Check that the tasks that follow live in the same partition: all are one step."""
        for one in follows:
            if self.with_any(one.task) is not part:
                raise InvalidInput(
                    f"task id {one.task.id!r} is not in the partition of what it follows from"
                )
        return part

    def beginning_at(self, name: str) -> list[Partition]:
        """All of them; who comes first follows from the name."""
        start = self._number(name)
        return self._parts[start:] + self._parts[:start]

    async def spread(
        self,
        batch: Sequence[T],
        part_of: Callable[[T], Partition | None],
        ask: Callable[[Partition, list[T]], Awaitable[Sequence[U]]],
        otherwise: Callable[[T], U],
    ) -> list[U]:
        """Each element asked of its partition, the answers in the order of the batch."""
        if len(self._parts) == 1:
            return list(await ask(self._parts[0], list(batch))) if batch else []
        places: defaultdict[Partition, list[int]] = defaultdict(list)
        answers: dict[int, U] = {}
        for place, one in enumerate(batch):
            part = part_of(one)
            if part is None:
                answers[place] = otherwise(one)
            else:
                places[part].append(place)
        asked = (ask(part, [batch[i] for i in at]) for part, at in places.items())
        found, missed = await try_all(asked)
        for at, some in zip(places.values(), found, strict=True):
            answers.update(zip(at, _answers_of(some, len(at)), strict=True))
        answered = [answers[place] for place in range(len(batch))]
        if missed is not None:
            raise PartlyUnavailable(missed, answered)
        return answered


def _not_from_home(task_id: str) -> InvalidInput:
    return InvalidInput(f"task id {task_id!r} was not made by this store's partitioned_id()")


def _answers_of(some: Sequence[Any] | StoreError, number: int) -> Sequence[Any]:
    if isinstance(some, PartlyUnavailable):
        return some.answers
    return [some] * number if isinstance(some, StoreError) else some


def nowhere(one: object) -> NoReturn:
    raise AssertionError(f"{one} has no partition")


async def try_all(
    asked: Iterable[Awaitable[T]],
) -> tuple[list[T | StoreError], StoreError | None]:
    """Every answer, with errors in place, and the last of these; raised if there is no other."""
    found = await asyncio.gather(*asked, return_exceptions=True)
    answers: list[T | StoreError] = []
    missed: StoreError | None = None
    for one in found:
        if isinstance(one, StoreError):
            missed = one
        elif isinstance(one, BaseException):
            raise one
        answers.append(one)
    whole_failures = sum(
        isinstance(one, StoreError) and not isinstance(one, PartlyUnavailable) for one in found
    )
    if missed is not None and whole_failures == len(found):
        raise missed
    return answers, missed


async def gather_all(asked: Iterable[Awaitable[T]]) -> list[T]:
    """Every answer is waited for, then the first error is raised: nothing is left running."""
    found = await asyncio.gather(*asked, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


def unless_failed(answers: Sequence[T | StoreError]) -> list[T]:
    errors = [answer for answer in answers if isinstance(answer, StoreError)]
    if not errors:
        return [answer for answer in answers if not isinstance(answer, StoreError)]
    raise errors[0] if len(errors) == len(answers) else PartlyUnavailable(errors[0], answers)


async def all_at_once(calls: Iterable[Awaitable[Sequence[T]]]) -> list[T]:
    """Sent one behind the other on one connection, so that the server does not wait for us.

    If one fails, so does the whole; a repeat of the others does no harm.
    """
    first, *others = calls
    if not others:
        return list(await first)
    found = await asyncio.gather(first, *others)
    return [one for some in found for one in some]
