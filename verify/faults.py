"""A store behind a bad line: what is asked may be lost, doubled, late, or answered to nobody.

`FaultyStore` is one process's way to a store that it shares with others. Each call goes over a
`Line`, which draws the fate of request and reply from a seeded chance. Used by the simulation; a
user's own tests can put it in front of any store whose verbs answer at once, such as the memory
store.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar, cast

from holdfast.domain.audit import Audit, Chain
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports import (
    Beat,
    Check,
    Claimed,
    Clock,
    Detail,
    Due,
    ErrorGroup,
    Filter,
    Finding,
    Kept,
    Page,
    Peek,
    Renewal,
    Stats,
    Store,
    Switch,
    TenantView,
    Thrown,
    Timings,
    Topic,
    WorkerInfo,
)
from holdfast.runtime.deadlines import sleep
from verify.faulty_parts import FaultyPlans, FaultyTriggers

T = TypeVar("T")

COMMITS = frozenset({"apply", "triggers.apply", "plans.apply"})


class Fault(StrEnum):
    LOST_REQUEST = "lost request"  # not applied, and the sender does not know
    LOST_REPLY = "lost reply"  # applied, and the sender does not know
    LATE = "late request"  # the sender has given it up when it is applied
    TWICE = "twice"  # applied two times, at once or some time apart
    SLOW = "slow"
    OUTAGE = "outage"  # the store is down for all
    CRASH_BEFORE = "crash before"  # the process dies; its request dies with it
    CRASH_AFTER = "crash after"  # the process dies; its request is applied
    LOST_SIGNAL = "lost signal"  # nobody is woken; the timeout must do


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How probable each fault is, per call; all zero: a good line."""

    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    slow: float = 0.0
    crash_before: float = 0.0
    crash_after: float = 0.0
    lost_signal: float = 0.0
    latency_seconds: float = 0.01  # at most, each way
    commit_seconds: float = 0.0  # at most: what a write takes longer than a look
    slow_seconds: float = 5.0  # at most
    give_up_seconds: float = 2.0  # at most, until a sender takes its request for lost

    def calm(self) -> Rates:
        return Rates(latency_seconds=self.latency_seconds, commit_seconds=self.commit_seconds)

    def drawn(self, chance: random.Random) -> Fault | None:
        roll = chance.random()
        for rate, fault in (
            (self.lost_request, Fault.LOST_REQUEST),
            (self.lost_reply, Fault.LOST_REPLY),
            (self.late, Fault.LATE),
            (self.twice, Fault.TWICE),
            (self.slow, Fault.SLOW),
            (self.crash_before, Fault.CRASH_BEFORE),
            (self.crash_after, Fault.CRASH_AFTER),
        ):
            roll -= rate
            if roll < 0:
                return fault
        return None

    def without_crashes(self) -> Rates:
        return replace(self, crash_before=0.0, crash_after=0.0)


class Line(Protocol):
    """What lies between a process and the store."""

    async def call(self, verb: str, ask: Callable[[Store], Awaitable[T]]) -> T: ...

    def ticket(self, topic: Topic) -> int: ...

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None: ...


class FaultyLine:
    """Requests and replies travel outside of the process: it may die or be stopped meanwhile."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        chance: random.Random,
        *,
        outside: Callable[[float, Callable[[], None]], object],
        crash: Callable[[], None],
        noted: Callable[[str, Fault], None],
    ) -> None:
        """``outside`` calls after some seconds, whatever befalls the process."""
        self._store = store
        self._clock = clock
        self._chance = chance
        self._outside = outside
        self._crash = crash
        self._noted = noted
        self.rates = Rates()
        self.is_down: Callable[[], bool] = lambda: False

    async def call(self, verb: str, ask: Callable[[Store], Awaitable[T]]) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        request = _Request(verb, ask, future)
        if self.is_down():
            self._noted(verb, Fault.OUTAGE)
            self._fail(request, after=self._moment())
        else:
            self._send(request, self.rates.drawn(self._chance))
        return await future

    def _send(self, request: _Request[T], fault: Fault | None) -> None:
        if fault is not None:
            self._noted(request.verb, fault)
        match fault:
            case None:
                self._deliver(request, after=self._moment())
            case Fault.SLOW:
                slow = self._chance.random() * self.rates.slow_seconds
                self._deliver(request, after=slow, back=self._chance.random() * slow)
            case Fault.LOST_REQUEST:
                self._fail(request, after=self._patience())
            case Fault.LOST_REPLY:
                self._deliver(request, after=self._moment(), answered=False)
                self._fail(request, after=self._patience())
            case Fault.LATE:
                patience = self._patience()
                self._fail(request, after=patience)
                self._deliver(request, after=patience * (1 + self._chance.random()), answered=False)
            case Fault.TWICE:
                self._deliver(request, after=self._moment())
                again = self._moment() if self._chance.random() < 0.5 else self._patience()
                self._deliver(request, after=again)
            case Fault.CRASH_BEFORE:
                self._crash()
            case Fault.CRASH_AFTER:
                self._deliver(request, after=self._moment(), answered=False)
                self._crash()

    def _deliver(
        self,
        request: _Request[T],
        *,
        after: float,
        back: float | None = None,
        answered: bool = True,
    ) -> None:
        travel = self._moment() if back is None else back
        if request.verb in COMMITS:
            after += self._chance.random() * self.rates.commit_seconds

        def arrive() -> None:
            if self.is_down():
                self._fail(request, after=travel)
                return
            answer = at_once(request.ask(self._store))
            if answered:
                self._outside(travel, lambda: request.answer(answer))

        self._outside(after, arrive)

    def _fail(self, request: _Request[T], *, after: float) -> None:
        self._outside(after, request.fail)

    def _moment(self) -> float:
        return self._chance.random() * self.rates.latency_seconds

    def _patience(self) -> float:
        return self._chance.random() * self.rates.give_up_seconds

    def ticket(self, topic: Topic) -> int:
        return self._store.ticket(topic)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        if self._chance.random() < self.rates.lost_signal:
            self._noted("wait", Fault.LOST_SIGNAL)
            await sleep(self._clock, timeout)
        else:
            await self._store.wait(topic, ticket, timeout=timeout)


class _Request(Generic[T]):
    __slots__ = ("ask", "future", "verb")

    def __init__(
        self, verb: str, ask: Callable[[Store], Awaitable[T]], future: asyncio.Future[T]
    ) -> None:
        self.verb, self.ask, self.future = verb, ask, future

    def answer(self, answer: T) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self) -> None:
        if not self.future.done():
            self.future.set_exception(StoreUnavailable("the line is bad"))


def at_once(asked: Awaitable[T]) -> T:
    """The answer of a coroutine that never waits."""
    try:
        next(asked.__await__())
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("a store behind a faulty line must answer at once")


class FaultyStore:
    """The Store port over a `Line`."""

    durable = False
    url = "faulty://"

    def __init__(self, line: Line) -> None:
        self._line = line
        self.triggers = FaultyTriggers(line)
        self.plans = FaultyPlans(line)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def detach(self) -> None:
        pass

    def home(self, task_id: str, *, tenant: str | None, key: str | None) -> str:
        del tenant, key
        return task_id

    def beside(self, name: str, task_id: str) -> str:
        del task_id
        return name

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        return await self._line.call("insert", lambda to: to.insert(batch, depth_limit=depth_limit))

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        return await self._line.call(
            "claim",
            lambda to: to.claim(
                worker, request=request, queues=queues, limit=limit, lease_seconds=lease_seconds
            ),
        )

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        return await self._line.call("apply", lambda to: to.apply(batch))

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        return await self._line.call(
            "renew", lambda to: to.renew(beat, batch, lease_seconds=lease_seconds)
        )

    async def leave(self, worker: str) -> None:
        await self._line.call("leave", lambda to: to.leave(worker))

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        return await self._line.call(
            "expire",
            lambda to: to.expire(limit=limit, count_crashes=count_crashes, alone_from=alone_from),
        )

    async def promote(self, *, limit: int) -> Due:
        return await self._line.call("promote", lambda to: to.promote(limit=limit))

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        return await self._line.call(
            "prune",
            lambda to: to.prune(
                kind,
                older_than_seconds=older_than_seconds,
                limit=limit,
                dry_run=dry_run,
                ignore_keep=ignore_keep,
            ),
        )

    async def reconcile(self, *, every_seconds: float) -> Sequence[Finding]:
        return await self._line.call(
            "reconcile", lambda to: to.reconcile(every_seconds=every_seconds)
        )

    async def audit(self, entry: Audit) -> None:
        await self._line.call("audit", lambda to: to.audit(entry))

    async def seal(self, *, limit: int) -> int:
        return await self._line.call("seal", lambda to: to.seal(limit=limit))

    async def throw(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        return await self._line.call(
            "throw", lambda to: to.throw(switch, name, on=on, audit=audit, until=until)
        )

    async def observe(self, batch: Sequence[Timings]) -> None:
        await self._line.call("observe", lambda to: to.observe(batch))

    async def load(self, ids: Sequence[str]) -> Sequence[Task | None]:
        return await self._line.call("load", lambda to: to.load(ids))

    async def peek(self, ids: Sequence[str]) -> Sequence[Peek | None]:
        return await self._line.call("peek", lambda to: to.peek(ids))

    async def detail(self, task_id: str) -> Detail | None:
        return await self._line.call("detail", lambda to: to.detail(task_id))

    async def checkpoint(self, task_id: str) -> Checkpoint | None:
        return await self._line.call("checkpoint", lambda to: to.checkpoint(task_id))

    async def find(self, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        return await self._line.call("find", lambda to: to.find(where, limit=limit, cursor=cursor))

    async def tenants(self, names: Sequence[str]) -> Sequence[TenantView]:
        return await self._line.call("tenants", lambda to: to.tenants(names))

    async def workers(self, *, live_within_seconds: float) -> Sequence[WorkerInfo]:
        return await self._line.call(
            "workers", lambda to: to.workers(live_within_seconds=live_within_seconds)
        )

    async def stats(self) -> Stats:
        return await self._line.call("stats", lambda to: to.stats())

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        return await self._line.call("audits", lambda to: to.audits(limit=limit, cursor=cursor))

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        return await self._line.call("chain", lambda to: to.chain(after=after, limit=limit))

    async def switches(self) -> Sequence[Thrown]:
        return await self._line.call("switches", lambda to: to.switches())

    async def errors(self, *, limit: int) -> Sequence[ErrorGroup]:
        return await self._line.call("errors", lambda to: to.errors(limit=limit))

    async def line(self, tenant: str, *, limit: int) -> Sequence[str]:
        return await self._line.call("line", lambda to: to.line(tenant, limit=limit))

    async def doctor(
        self, *, fix: bool, limit: int, seen: Callable[[int], None] | None = None
    ) -> Sequence[Finding]:
        return await self._line.call(
            "doctor", lambda to: to.doctor(fix=fix, limit=limit, seen=seen)
        )

    async def checks(self) -> Sequence[Check]:
        return await self._line.call("checks", lambda to: to.checks())

    def ticket(self, topic: Topic) -> int:
        return self._line.ticket(topic)

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        await self._line.wait(topic, ticket, timeout=timeout)
