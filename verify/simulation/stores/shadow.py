"""A second store in a simulated world, which gets the same calls and must answer the same.

Every call of the watched store is repeated on the shadow, in the same order and at the same virtual
time, and the answers must be alike (see `likeness`). One call differs: a claim that comes late,
after a newer claim of the same worker. The memory store remembers the newest request and takes the
late one for a new request. The other stores do not record a claim that got nothing, so an older
request may still be their last one, and they repeat its answer. Both are right, because nobody
waits for that answer any more, but the two stores would differ from then on. Such a claim gets a
new request name.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.domain.audit import first_break
from holdfast.domain.errors import HoldfastError
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Transition
from holdfast.ports import DuePlans, Filter, Renewal, Store
from holdfast.stores.sqlite import SqliteStore
from verify.faults import at_once
from verify.interception import InterceptedStore, Verb, verbs_of
from verify.simulation.stores.likeness import Pairing, plain
from verify.simulation.stores.shadow_parts import (
    PlanLeases,
    essence,
)
from verify.simulation.stores.watched_store import WatchedStore

if TYPE_CHECKING:
    from verify.simulation.world import SimulatedWorld

ANSWER_SECONDS = 60.0
LOADED_EVERY_STEPS = 100
EXAMINED_EVERY_STEPS = 150
ALL = 1_000
SHOWN = 400  # characters of an answer
WRITES = frozenset(
    {
        *(f"tasks.{verb}" for verb in verbs_of("tasks")),
        *(f"admin.{verb}" for verb in "prune audit set_switch observe".split()),
        *(f"plans.{verb}" for verb in "create claim renew wake apply".split()),
        *(f"triggers.{verb}" for verb in "claim apply".split()),
    }
)
READS = frozenset(
    {
        *(f"views.{verb}" for verb in verbs_of("views") if verb != "tenants"),
        *(f"admin.{verb}" for verb in "audits switches".split()),
        *(f"plans.{verb}" for verb in "load tasks members events find".split()),
        *(f"triggers.{verb}" for verb in "find find_all".split()),
    }
)

T = TypeVar("T")
Call = Callable[[Store], Coroutine[Any, Any, Any]]

_numbers = count(1)


def double_store(watched: WatchedStore, shadow: Shadow) -> Store:
    """Return the store that asks both; the watched store's answers count."""

    def both(name: str, asked: Verb) -> Verb:
        if name not in WRITES | READS:
            return asked

        async def ask(*given: Any, **named: Any) -> Any:
            try:
                answer = await asked(*given, **named)
            except HoldfastError as error:
                shadow.follow(name, given, named, error)
                raise
            shadow.follow(name, given, named, answer)
            return answer

        return ask

    return InterceptedStore(watched, both)


class Shadow:
    def __init__(self, store: Store, watched: WatchedStore) -> None:
        self.store = store
        self.pairing = Pairing()
        self.leases = PlanLeases()
        self._watched = watched
        self._known: dict[str, Task] = {}
        self._claims: dict[str, tuple[str, str]] = {}  # each worker's last, and what we called it
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shadow", daemon=True)
        self._thread.start()

    def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for the shadow's answer; the virtual time stands still meanwhile."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(ANSWER_SECONDS)

    def close(self) -> None:
        try:
            self.ask(self.store.close())
            self.ask(self._loop.shutdown_default_executor())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(ANSWER_SECONDS)
            self._loop.close()

    # -- step by step

    def follow(
        self, verb: str, given: Sequence[Any], named: Mapping[str, Any], answer: Any
    ) -> None:
        if self._watched.book.broken is not None:
            return
        other = self._ask_verb(verb, *self._translate(verb, given, named))
        if verb == "tasks.claim" and isinstance(answer, list) and isinstance(other, list):
            self.pairing.learn(answer, other)
        if isinstance(answer, DuePlans) and isinstance(other, DuePlans):
            self.leases.learn(answer, other)
        if verb.startswith(("plans.", "triggers.")):
            answer, other = essence(answer), essence(other)
        self._compare(verb, answer, other)
        if verb in WRITES:
            self._compare_records(self._changed_ids())
            if self._watched.book.steps % EXAMINED_EVERY_STEPS == 0:
                self._examine()

    def _ask_verb(self, verb: str, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        try:
            return self.ask(attrgetter(verb)(self.store)(*given, **named))
        except HoldfastError as error:
            return error

    def _translate(
        self, verb: str, given: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        match verb:
            case "tasks.claim":
                return given, {**named, "request": self._request(given[0], named["request"])}
            case "tasks.apply":
                return [[self._translate_transition(transition) for transition in given[0]]], named
            case "tasks.renew":
                return [given[0], [self._translate_renewal(renewal) for renewal in given[1]]], named
            case "tasks.leave":
                self._claims.pop(given[0], None)
        return self.leases.translate(verb, given, named)

    def _request(self, worker: str, request: str) -> str:
        last, called = self._claims.get(worker, ("", ""))
        if request != last:
            called = f"{request}-{next(_numbers)}"
            self._claims[worker] = (request, called)
        return called

    def _translate_transition(self, transition: Transition) -> Transition:
        after = transition.after
        after = msgspec.structs.replace(after, fence=self.pairing.fence_of(after.fence))
        lease = self.pairing.lease_of(transition.lease) if transition.lease else None
        return msgspec.structs.replace(transition, after=after, lease=lease)

    def _translate_renewal(self, renewal: Renewal) -> Renewal:
        return msgspec.structs.replace(renewal, lease_id=self.pairing.lease_of(renewal.lease_id))

    def _changed_ids(self) -> list[str]:
        """Return the tasks that have changed since the last call, and sometimes all tasks."""
        known, now = self._known, self._watched.state.tasks
        changed = [i for i, task in now.items() if known.get(i) is not task]
        changed += [i for i in known if i not in now]
        self._known = dict(now)
        return [*now] if self._watched.book.steps % LOADED_EVERY_STEPS == 0 else changed

    def _compare_records(self, ids: Sequence[str]) -> None:
        if ids:
            ours = [self._watched.state.tasks.get(task_id) for task_id in ids]
            self._compare("load", ours, self.ask(self.store.views.load(ids)))

    def _compare(self, verb: str, model: Any, other: Any) -> None:
        difference = self.pairing.difference(model, other)
        if difference is not None:
            message = (
                f"{type(self.store).__name__} answers {verb} differently: {difference}"
                f"\n    watched: {str(plain(model))[:SHOWN]}"
                f"\n    shadow:  {str(plain(other))[:SHOWN]}"
            )
            self._watched.book.fail("S1", message, self._watched.now)

    # -- in the end

    def judge_the_end(self) -> None:
        """Compare everything that can be read, and run the doctor."""
        tenants = sorted(
            {task.tenant for task in self._watched.state.tasks.values() if task.tenant}
        )
        calls: dict[str, Call] = {
            "find": lambda store: store.views.find(Filter(), limit=ALL),
            "tenants": lambda store: store.views.tenants(tenants),
            "stats": lambda store: store.views.stats(),
            "audits": lambda store: store.admin.audits(limit=ALL),
            "switches": lambda store: store.admin.switches(),
            "errors": lambda store: store.views.error_groups(limit=ALL),
            "the audit chain": _load_chain,
            "peek": lambda store: store.views.peek(
                [*self._watched.state.tasks, *self._watched.state.tombstones]
            ),
        }
        calls |= {f"detail of {i}": _detail_of(i) for i in self._watched.state.tasks}
        for verb, call in calls.items():
            self._compare(verb, at_once(call(self._watched)), self.ask(call(self.store)))
        self._examine()

    def _examine(self) -> None:
        """Compare what the verbs do not show: locks, indexes, counts."""
        for finding in self.ask(self.store.admin.doctor(fix=False, limit=1)):
            message = f"the doctor of {type(self.store).__name__} found {finding.invariant}"
            self._watched.book.fail(
                "S1", f"{message}: {finding.message}", self._watched.now, finding.task_id
            )


async def _load_chain(store: Store) -> list[Any]:
    """Load the whole audit chain, in an order that does not depend on when entries were sealed."""
    while await store.admin.seal(limit=ALL):
        pass
    chain = await store.admin.chain(limit=ALL)
    entries = sorted((link.entry for link in chain.links), key=lambda one: (one.at, one.task_id))
    return [chain.base.seq, chain.head.seq, first_break(chain.base, chain.links), entries]


def _detail_of(task_id: str) -> Call:
    return lambda store: store.views.detail(task_id)


# -- which stores


@contextmanager
def cast_by(world: SimulatedWorld, kind: str | None) -> Iterator[None]:
    """Give the world a shadow of this kind: sqlite, the URL of a Redis server, or None."""
    if kind is None:
        yield
        return
    with _store(world, kind) as store:
        shadow = Shadow(store, world.store)
        try:
            shadow.ask(store.open())
            world.shadow, world.front = shadow, double_store(world.store, shadow)
            yield
        finally:
            shadow.close()


@contextmanager
def _store(world: SimulatedWorld, kind: str) -> Iterator[Store]:
    clock = world.clock
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="holdfast-shadow-") as folder:
            yield SqliteStore(Path(folder) / "holdfast.db", clock)
        return
    from holdfast.stores.redis.store import RedisStore

    name = f"sim-{os.getpid()}-{next(_numbers)}"
    try:
        yield RedisStore(kind, clock, name, time=lambda: (world.store.now, clock.now()))
    finally:
        _forget(kind, name)


def _forget(url: str, namespace: str) -> None:
    import redis

    with redis.Redis.from_url(url.partition("?")[0]) as client:
        client.unlink("none", *client.scan_iter(f"{namespace}:*", count=ALL))
