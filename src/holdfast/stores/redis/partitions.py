"""All partitions of a store: where a task is, and how a verb is spread over them."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from holdfast.domain.errors import InvalidInput, PartlyUnavailable, StoreError
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Submission
from holdfast.stores.redis.keys import number_of
from holdfast.stores.redis.partition import Partition

_OF_A_TRIGGER = re.compile(r"[^@]+\.p([0-9]{2,4})@")

T = TypeVar("T")
U = TypeVar("U")


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
        """For a task without tenant and key: one that has any is at home with that."""
        return name if len(self) == 1 else f"{name}{self._ending(part)}"

    def _ending(self, part: Partition) -> str:
        return f".p{number_of(self._parts.index(part))}"

    def _number_of(self, tenant: str | None, key: str | None, task_id: str) -> int:
        """A trigger's task lives where the trigger does: its key begins with the trigger's id,
        which ends with the partition (`nightly.p03@…`)."""
        if tenant is None and key is not None and (named := _OF_A_TRIGGER.match(key)):
            number = int(named[1])
            if number < len(self):
                return number
        return self._number(tenant or key or task_id)

    def _number(self, name: str) -> int:
        return zlib.crc32(name.encode()) % len(self)

    def of_trigger(self, trigger_id: str) -> Partition | None:
        """None: that is no id, but at most a name. Tasks are made by it, so there is one way only
        to write the partition's number."""
        part = self.of_task(trigger_id)
        if part is None or len(self) == 1:
            return part
        return part if trigger_id.endswith(self._ending(part)) else None

    def of_plan(self, plan_id: str) -> Partition:
        return self._parts[self._number(plan_id)]

    def of_tenant(self, tenant: str) -> Partition:
        return self._parts[self._number(tenant)]

    def of_task(self, task_id: str) -> Partition | None:
        """None: no task here can have that id."""
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
        """They go in with something else, in one step: so they live where it does."""
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
        found, missed = await tried(asked)
        for at, some in zip(places.values(), found, strict=True):
            answers.update(zip(at, _each(some, len(at)), strict=True))
        answered = [answers[place] for place in range(len(batch))]
        if missed is not None:
            raise PartlyUnavailable(missed, answered)
        return answered


def _not_from_home(task_id: str) -> InvalidInput:
    return InvalidInput(f"task id {task_id!r} was not made by this store's partitioned_id()")


def _each(some: Sequence[Any] | StoreError, number: int) -> Sequence[Any]:
    if isinstance(some, PartlyUnavailable):
        return some.answers
    return [some] * number if isinstance(some, StoreError) else some


def nowhere(one: object) -> NoReturn:
    raise AssertionError(f"{one} has no partition")


async def tried(
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


async def everything(asked: Iterable[Awaitable[T]]) -> list[T]:
    """Every answer is waited for, then the first error is raised: nothing is left running."""
    found = await asyncio.gather(*asked, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]
