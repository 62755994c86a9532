"""A store behind a bad connection, on which requests and replies are lost, doubled or late.

`faulty_store` is the store as one process reaches it. Each call goes over a `FaultyConnection`,
which draws the fate of request and reply from a seeded chance. The simulation uses it, and other
tests can put it in front of any store whose verbs answer at once, such as the memory store.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from holdfast.domain.errors import StoreUnavailable
from holdfast.ports import (
    Clock,
    Store,
    Topic,
)
from holdfast.ports.wrapped_store import WrappedStore
from holdfast.runtime.deadlines import sleep
from verify.interception import InterceptedStore, Verb

T = TypeVar("T")

COMMITS = frozenset({"tasks.apply", "triggers.apply", "plans.apply"})


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
    """The probability of each fault, per call; all zero is a good line."""

    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    slow: float = 0.0
    crash_before: float = 0.0
    crash_after: float = 0.0
    lost_signal: float = 0.0
    latency_seconds: float = 0.01  # at most, each way
    commit_seconds: float = 0.0  # at most: how much longer a write takes than a read
    slow_seconds: float = 5.0  # at most
    give_up_seconds: float = 2.0  # at most, until a sender takes its request for lost

    def calm(self) -> Rates:
        return Rates(latency_seconds=self.latency_seconds, commit_seconds=self.commit_seconds)

    def draw_fault(self, chance: random.Random) -> Fault | None:
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


class FaultyConnection:
    """The connection of one process, which may die or be stopped while a request is on its way."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        chance: random.Random,
        *,
        outside: Callable[[float, Callable[[], None]], object],
        crash: Callable[[], None],
        note_fault: Callable[[str, Fault], None],
    ) -> None:
        """``outside`` calls a function after some seconds, whatever happens to the process."""
        self.store = store
        self._clock = clock
        self._chance = chance
        self._outside = outside
        self._crash = crash
        self._note_fault = note_fault
        self.rates = Rates()
        self.is_down: Callable[[], bool] = lambda: False

    async def call(self, verb: str, ask: Callable[[], Awaitable[T]]) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        request = _Request(verb, ask, future)
        if self.is_down():
            self._note_fault(verb, Fault.OUTAGE)
            self._fail(request, after=self._moment())
        else:
            self._send(request, self.rates.draw_fault(self._chance))
        return await future

    def _send(self, request: _Request[T], fault: Fault | None) -> None:
        if fault is not None:
            self._note_fault(request.verb, fault)
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
            answer = at_once(request.ask())
            if answered:
                self._outside(travel, lambda: request.answer(answer))

        self._outside(after, arrive)

    def _fail(self, request: _Request[T], *, after: float) -> None:
        self._outside(after, request.fail)

    def _moment(self) -> float:
        return self._chance.random() * self.rates.latency_seconds

    def _patience(self) -> float:
        return self._chance.random() * self.rates.give_up_seconds

    async def wait(self, topic: Topic, ticket: int, *, timeout: float) -> None:
        if self._chance.random() < self.rates.lost_signal:
            self._note_fault("wait", Fault.LOST_SIGNAL)
            await sleep(self._clock, timeout)
        else:
            await self.store.wait(topic, ticket, timeout=timeout)


class _Request(Generic[T]):
    __slots__ = ("ask", "future", "verb")

    def __init__(
        self, verb: str, ask: Callable[[], Awaitable[T]], future: asyncio.Future[T]
    ) -> None:
        self.verb, self.ask, self.future = verb, ask, future

    def answer(self, answer: T) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self) -> None:
        if not self.future.done():
            self.future.set_exception(StoreUnavailable("the line is bad"))


def at_once(asked: Awaitable[T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        next(asked.__await__())
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("a store behind a faulty line must answer at once")


def faulty_store(line: FaultyConnection) -> WrappedStore:
    """Return the store at the end of a line: every verb goes over it."""

    def over_the_line(name: str, verb: Verb) -> Verb:
        async def ask(*given: Any, **named: Any) -> Any:
            return await line.call(name, lambda: verb(*given, **named))

        return ask

    return InterceptedStore(line.store, over_the_line, wait=line.wait)
