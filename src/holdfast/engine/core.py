"""`Holdfast` puts an app together: its declarations, its store, its workers and its operations."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Unpack

import holdfast.integrations  # noqa: F401 - registers the chat services
from holdfast.clock import SystemClock
from holdfast.domain import names
from holdfast.domain.errors import HoldfastError, InvalidSetting
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.events import TaskProgress
from holdfast.domain.task.task import By
from holdfast.encoding.codec import UntypedCodec
from holdfast.engine.app_decorators import TaskDeclarer, WorkflowDeclarer
from holdfast.engine.bulk import rounds
from holdfast.engine.bulk.bulks import Bulks
from holdfast.engine.handle import Handle
from holdfast.engine.operations import retention
from holdfast.engine.operations.backup import back_up
from holdfast.engine.operations.checkpoints import Checkpoints
from holdfast.engine.operations.control import NOT_OPEN, Control, StoreSlot
from holdfast.engine.operations.queues import Queues
from holdfast.engine.operations.retention import Pruned, PruneTerms
from holdfast.engine.operations.tenants import Tenants
from holdfast.engine.options import check_options, complete_options, show_options
from holdfast.engine.orphans import warn_of_orphans
from holdfast.engine.plans.create import Plans
from holdfast.engine.query import Query
from holdfast.engine.queue_watch import QueueWatch
from holdfast.engine.store_url import open_store
from holdfast.engine.submit import Submitter
from holdfast.engine.triggers.schedules import Schedules
from holdfast.engine.visibility import WHOLE, Sight
from holdfast.engine.workers import WorkerTerms, end_worker, worker_options
from holdfast.insight.why.task import explain
from holdfast.notify import deliveries, hooks
from holdfast.notify.chat import ChatReply, load_bot
from holdfast.notify.notifier import Notifier
from holdfast.notify.task_writes import notifying
from holdfast.ports import Clock, Kept, Store
from holdfast.ports.store import Copy
from holdfast.ports.tracing import NO_TRACER, Tracer
from holdfast.registry import Registry
from holdfast.runtime.environment import WorkerEnvironment, new_worker_name
from holdfast.runtime.store_outages import StoreOutages
from holdfast.runtime.waiters import Waiters
from holdfast.runtime.worker.worker import Worker
from holdfast.settings import load
from holdfast.stores.memory import MemoryStore

if TYPE_CHECKING:
    from holdfast.engine.blocking.faces import Blocking


APP = By(actor="app")


class Holdfast:
    """An engine: declare tasks on it, open it with ``async with``, submit, and run workers.

    ``store`` is a URL or an opened store of your own; without it ``HOLDFAST_STORE`` counts, else
    ``sqlite:///holdfast.db``. Any other setting can be given by its lower-case name.
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        **settings: Any,
    ) -> None:
        self._given = None if isinstance(store, str) else store
        self.settings = load(store=store if isinstance(store, str) else None, **settings)
        self.redactor = Redactor((given := self.settings).redact, given.redact_patterns)
        self.tracer: Tracer = _tracer(self.redactor) if given.tracing else NO_TRACER
        self.registry = Registry()
        self.task = TaskDeclarer(self)
        self.workflow = WorkflowDeclarer(self)
        self.registry.add_internal(rounds.declare(self))
        self.hooks = hooks.load(given)
        self.bot = load_bot(given, self.hooks.allowed)
        delivery = deliveries.declare(self, self.hooks)
        if given.deliveries and deliveries.can_deliver(self.hooks):
            self.registry.add_internal(delivery)
        self.notifier = Notifier(self, delivery, tuple(self.hooks.hooks.values()))
        self._slot = StoreSlot()
        self._wire(clock or SystemClock(), chance or random.SystemRandom())
        self.checkpoints = Checkpoints(self, APP)
        self.plan = Plans(self, APP)
        self.schedule = Schedules(self, APP)
        self.bulk = Bulks(self, APP)
        self.queues = Queues(self, APP)
        self.tenants = Tenants(self, APP)
        self.on_progress: Callable[[TaskProgress], None] | None = None  # volatile, own workers only
        self.degraded = False  # on the memory store because the real one was out of reach
        self._waiters: Waiters | None = None
        self._queue_watch: QueueWatch | None = None
        self._submitter = submitter = Submitter(self)
        self.submit, self.submit_many = submitter.submit, submitter.submit_many
        self.describe_task = submitter.describe_task
        self._worked_queues = set[str]()  # the queues that workers of this process serve
        self._opened = 0
        self._blocking: Blocking | None = None

    def _wire(self, clock: Clock, chance: random.Random) -> None:
        self.clock, self.chance = clock, chance
        self.control = Control(self._slot, clock, chance, APP)
        self.query = Query(self._slot, self.control, clock.now)

    # -- opening

    @property
    def store(self) -> Store:
        """Return the store of the open app; raise HoldfastError if the app is not open."""
        return self._slot.store or self._slot.require()

    @property
    def is_open(self) -> bool:
        """Return whether the app is open."""
        return self._opened > 0

    @property
    def in_memory(self) -> bool:
        """Return whether the store is in this process alone: given so, or as the fallback."""
        store = self._slot.store
        return store is not None and store.url == MemoryStore.url

    @property
    def waiters(self) -> Waiters:
        if self._waiters is None:
            raise HoldfastError(NOT_OPEN)
        return self._waiters

    async def __aenter__(self) -> Holdfast:
        if self._opened == 0:
            self.registry.check()
            store = await self._open_store()
            self._queue_watch = QueueWatch(
                store,
                self.clock,
                lease_seconds=self.settings.lease,
                own=lambda: self._worked_queues,
            )
            self._attach(store)
        self._opened += 1
        return self

    def _attach(self, store: Store, waiters: Callable[[Store], Waiters] = Waiters) -> None:
        self._waiters = waiters(store)
        self._slot.store = store = notifying(store, self.notifier, self._waiters)
        self._submitter.open(store, self._queue_watch)

    def _detach(self) -> None:
        self._submitter.close()
        self._slot.store = self._waiters = self._queue_watch = None

    async def __aexit__(self, *_: object) -> None:
        self._opened -= 1
        if self._opened == 0:
            store, waiters, queue_watch = self.store, self.waiters, self._queue_watch
            self._detach()
            if queue_watch is not None:
                await queue_watch.close()
            await waiters.close()
            if self._given is None:
                await store.close()

    @contextmanager
    def on(
        self,
        store: Store,
        *,
        clock: Clock,
        chance: random.Random,
        waiters: Callable[[Store], Waiters] = Waiters,
    ) -> Iterator[Holdfast]:
        """Open on another store, clock and chance for a while, for tests."""
        if self._opened:
            raise HoldfastError("the app is open already")
        self.registry.check()
        configured = self.clock, self.chance
        self._wire(clock, chance)
        self._attach(store, waiters)
        self._opened = 1
        try:
            yield self
        finally:
            self._opened = 0
            self._detach()
            self._wire(*configured)

    async def _open_store(self) -> Store:
        if self._given is not None:
            return self._given
        store, self.degraded = await open_store(self.settings, self.clock)
        return store

    @asynccontextmanager
    @show_options(WorkerTerms)
    async def running(
        self, workers: int = 1, **options: Unpack[WorkerTerms]
    ) -> AsyncIterator[Holdfast]:
        """Open the app with workers, timers and retention in this process; drain at the end."""
        check_options(WorkerTerms, options)
        async with self:
            await warn_of_orphans(self.store, self.clock, lease_seconds=self.settings.lease)
            crew = [self.worker(**options) for _ in range(workers)]
            try:
                for worker in crew:
                    await worker.start()
                yield self
            finally:
                await asyncio.gather(*map(end_worker, crew))

    @show_options(WorkerTerms)
    def worker(self, **given: Unpack[WorkerTerms]) -> Worker:
        """Return a new worker, to be started by ``await worker.start()`` and ended by ``drain``."""
        self.registry.check()
        options = complete_options(WorkerTerms, given)
        self._worked_queues.update(options["queues"] or self.settings.queue_names)
        env = WorkerEnvironment(
            worker=options["name"] or new_worker_name(self.clock, self.chance),
            store=self.store,
            registry=self.registry,
            clock=self.clock,
            chance=self.chance,
            outages=StoreOutages(self.clock),
            options=worker_options(self.settings, self.registry, options),
            tracer=self.tracer,
        )
        return Worker(
            env,
            on_zombie=options["on_zombie"],
            on_drained=options["on_drained"],
            isolate=options["isolate"],
            on_progress=self.on_progress,
        )

    # -- asking

    def check_callback(self, callback: str | ChatReply | None) -> str | None:
        """Return the stored form of a callback; a URL must be one that callbacks may go to."""
        if isinstance(callback, ChatReply):
            return str(callback)
        return None if callback is None else self.hooks.check_callback(callback)

    def handle(self, task_id: str) -> Handle[Any]:
        """Return a handle for a task that was submitted elsewhere; its result is plain JSON."""
        return Handle(self, names.check_text("task id", task_id), UntypedCodec())

    async def why(self, task_id: str, *, sight: Sight = WHOLE) -> str:
        """Return why a task does not run, as far as a reader may see it."""
        now, task_id = self.clock.now(), names.check_text("task id", task_id)
        find = self.registry.find
        return await explain(self.store, task_id, self.settings, now=now, sight=sight, find=find)

    async def backup(self, target: str | os.PathLike[str]) -> Copy:
        """Copy an SQLite store into a new file, as it is now, while everything goes on."""
        return await back_up(self.store, target, by=APP, now=self.clock.now())

    @show_options(PruneTerms)
    async def prune(self, *kinds: Kept | str, **terms: Unpack[PruneTerms]) -> Pruned:
        """Delete what has ended: all kinds but the audit, or those that are named.

        Tasks, triggers and plans stay for their own ``keep`` unless ``ignore_keep`` is true.
        """
        order = retention.new_order(kinds, terms, self.settings.lease, APP)
        return await order.carry_out(self.store, self.clock)

    @property
    def blocking(self) -> Blocking:
        """Return the same calls for code without an event loop: scripts, Django, the REPL."""
        from holdfast.engine.blocking.faces import Blocking

        if self._blocking is None:
            self._blocking = Blocking(self)
        return self._blocking


def _tracer(redactor: Redactor) -> Tracer:
    try:
        from holdfast.observe.tracing import OtelTracer
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        reason = "tracing needs OpenTelemetry: pip install 'holdfast-engine[tracing]'"
        raise InvalidSetting("HOLDFAST_TRACING", True, reason) from error
    return OtelTracer(redactor)
