"""A check whether a history is linearizable (Wing and Gong, with memoisation).

A history has the calls of several clients and their answers, with the times of both. It is
linearizable when all operations can be put in one order that respects those times (an operation
that had returned before another was called comes first) and in which a sequential model gives the
same answers. The search tries the orders depth first and remembers where it has been.

The model for stores is the memory store. This is our own code because the existing checkers are
for other languages; the search itself is forty lines.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Outcome, Submission, Transition
from holdfast.ports import Claimed, Clock, Filter, Store
from holdfast.stores.memory import MemoryStore

T = TypeVar("T")
STEPS_LIMIT = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    process: str  # the client; each makes one call after the other
    name: str
    arguments: Any
    called_at: float
    returned_at: float | None  # None: no answer came; it may or may not have happened
    answer: Any = None

    def __str__(self) -> str:
        return f"{self.process}: {self.name} → {self.answer}"


class Model(Protocol):
    def perform(self, operation: Operation) -> Any:
        """Perform the operation, and return what a sequential store answers."""

    def state(self) -> Hashable:
        """Return a value that is equal for models that will answer alike from now on."""


class TooHard(HoldfastError, stored_name="TooHard"):
    """The search was given up: the history is too concurrent for the limit."""

    code = "too-hard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linearization:
    order: tuple[Operation, ...]  # one that explains the answers, or the longest that was found
    unexplained: tuple[Operation, ...]  # what could have come next, and does not fit

    @property
    def linearizable(self) -> bool:
        return not self.unexplained

    def __str__(self) -> str:
        lines = [f"  {operation}" for operation in self.order[-10:]]
        return "\n".join(["after", *lines, "none of these fits:", *map(str, self.unexplained)])


def check(
    history: Sequence[Operation], new_model: Callable[[], Model], *, limit: int = STEPS_LIMIT
) -> Linearization:
    return _Search(history, new_model, limit).run()


class _Search:
    def __init__(
        self, history: Sequence[Operation], new_model: Callable[[], Model], limit: int
    ) -> None:
        # The first to return is tried first: most stores answer in the order of their work.
        self.history = sorted(history, key=_return_time)
        self.new_model, self.limit = new_model, limit
        self.answered = sum(
            1 << n for n, op in enumerate(self.history) if op.returned_at is not None
        )
        self.longest: tuple[int, ...] = ()
        self.steps = 0

    def run(self) -> Linearization:
        dead: set[tuple[int, Hashable]] = set()
        order: list[int] = []
        done, model = 0, self.new_model()
        untried = [self.candidates(done)]
        while done & self.answered != self.answered:
            if not untried[-1]:
                dead.add((done, model.state()))
                if not order:
                    return self.verdict(self.longest)
                untried.pop()
                done &= ~(1 << order.pop())
                model = self.replay(order)
                continue
            n = untried[-1].pop(0)
            if self.fits(model, n) and (done | 1 << n, model.state()) not in dead:
                order.append(n)
                done |= 1 << n
                untried.append(self.candidates(done))
                self.longest = max(self.longest, tuple(order), key=len)
            else:
                model = self.replay(order)
        return self.verdict(order, explained=True)

    def candidates(self, done: int) -> list[int]:
        """Return the operations that may come next: called before any of the others had
        returned."""
        left = [n for n in range(len(self.history)) if not done >> n & 1]
        first_return = min((_return_time(self.history[n]) for n in left), default=0.0)
        return [n for n in left if self.history[n].called_at <= first_return]

    def fits(self, model: Model, n: int) -> bool:
        self.steps += 1
        if self.steps > self.limit:
            raise TooHard(f"no verdict after {self.limit} steps over {len(self.history)} answers")
        operation = self.history[n]
        answer = model.perform(operation)
        return operation.returned_at is None or answer == operation.answer

    def replay(self, order: Sequence[int]) -> Model:
        model = self.new_model()
        for n in order:
            model.perform(self.history[n])
        return model

    def verdict(self, order: Sequence[int], *, explained: bool = False) -> Linearization:
        done = sum(1 << n for n in order)
        left = () if explained else self.candidates(done)
        return Linearization(
            order=tuple(self.history[n] for n in order),
            unexplained=tuple(self.history[n] for n in left),
        )


def _return_time(operation: Operation) -> float:
    return float("inf") if operation.returned_at is None else operation.returned_at


@dataclass(slots=True)
class Recorder:
    """Records the calls of a client and their answers. Several may share one history."""

    process: str
    history: list[Operation] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic  # the same in all processes of a machine

    async def record(
        self,
        name: str,
        arguments: Any,
        call: Awaitable[T],
        plain: Callable[[T], Any],
    ) -> T:
        called_at = self.clock()
        answer = await call
        self.history.append(
            Operation(
                process=self.process,
                name=name,
                arguments=arguments,
                called_at=called_at,
                returned_at=self.clock(),
                answer=plain(answer),
            )
        )
        return answer


class Client(Recorder):
    """A recording client of a store, with the verbs that compare and swap, and `load`."""

    __slots__ = ("store",)

    def __init__(self, store: Store, process: str, history: list[Operation]) -> None:
        super().__init__(process, history)
        self.store = store

    async def insert(self, submission: Submission) -> None:
        call = self.store.tasks.insert([submission], depth_limit=1_000_000)
        await self.record("insert", submission, call, repr)

    async def claim(self, arguments: ClaimArguments) -> Sequence[Claimed]:
        call = arguments.on(self.store)
        return await self.record("claim", arguments, call, plain_claims)

    async def apply(self, transition: Transition) -> Task | None:
        """Write a transition, and return the record in the answer, written or not."""
        call = self.store.tasks.apply([transition])
        (outcome,) = await self.record("apply", transition, call, plain_outcomes)
        return outcome.task

    async def expire(self) -> None:
        call = self.store.tasks.expire(limit=1_000, count_crashes=True)
        await self.record("expire", None, call, int)

    async def load(self, task_id: str) -> Task | None:
        (task,) = await self.record("load", task_id, self.store.views.load([task_id]), plain_tasks)
        return task


class ClaimArguments(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    request: str
    queues: tuple[str, ...] = ("default",)
    limit: int = 1
    lease_seconds: float = 30.0

    def on(self, store: Store) -> Coroutine[Any, Any, Sequence[Claimed]]:
        return store.tasks.claim(
            self.worker,
            request=self.request,
            queues=self.queues,
            limit=self.limit,
            lease_seconds=self.lease_seconds,
        )


class StoreModel:
    """The memory store, which performs the operations that a `Client` recorded."""

    def __init__(self, clock: Clock) -> None:
        self._store = MemoryStore(clock)
        self._leases: dict[int, str] = {}  # by their fence, which is not random

    def perform(self, operation: Operation) -> Any:
        store, arguments = self._store, operation.arguments
        match operation.name:
            case "insert":
                return repr(_now(store.tasks.insert([arguments], depth_limit=1_000_000)))
            case "claim":
                claims = _now(arguments.on(store))
                leases = [claimed.task.lease for claimed in claims]
                self._leases |= {lease.fence: lease.id for lease in leases if lease}
                return plain_claims(claims)
            case "apply":
                return plain_outcomes(_now(store.tasks.apply([self._with_own_lease(arguments)])))
            case "expire":
                return _now(store.tasks.expire(limit=1_000, count_crashes=True))
            case "load":
                return plain_tasks(_now(store.views.load([arguments])))
            case name:
                raise HoldfastError(f"the model does not know the operation {name!r}")

    def _with_own_lease(self, transition: Transition) -> Transition:
        """Replace the lease id, which is random, by the id that the model gave to this claim."""
        if transition.lease is None or transition.after.lease is None:
            return transition
        ours = self._leases.get(transition.after.lease.fence, "unknown")
        return msgspec.structs.replace(transition, lease=ours)

    def state(self) -> Hashable:
        tasks = _now(self._store.views.find(Filter(), limit=1_000)).tasks
        state = self._store.state
        queues = sorted({*state.ready, *state.taken_back})
        return *map(repr, tasks), *((queue, *state.queued_ids(queue)) for queue in queues)


def _now(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine of the memory store, which never waits."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise HoldfastError("the model waited for something")


# -- answers without their random parts


def plain_tasks(tasks: Sequence[Task | None]) -> list[Any]:
    return [_plain(task) for task in tasks]


def plain_claims(claims: Sequence[Claimed]) -> list[Any]:
    return [(_plain(claimed.task), len(claimed.stages)) for claimed in claims]


def plain_outcomes(outcomes: Sequence[Outcome]) -> list[Any]:
    return [(type(outcome).__name__, _plain(outcome.task)) for outcome in outcomes]


def _plain(task: Task | None) -> Any:
    if task is None:
        return None
    holder = (task.lease.owner, task.lease.fence) if task.lease else None
    return task.id, task.version, str(task.status), str(task.place), task.last_completed, holder
