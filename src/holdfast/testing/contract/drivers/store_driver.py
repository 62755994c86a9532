"""The store driver acts on a store as a worker and as an operator, one step at a time.

The domain decides every transition, and the port writes it, as in production.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.audit import Audit
from holdfast.domain.task import decide, operate
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.crashes import SUSPECT_FROM, position
from holdfast.domain.task.events import Event, name_of
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import By, Failure, FailureKind, Progress, Task
from holdfast.domain.task.transition import (
    Applied,
    Inserted,
    Insertion,
    Outcome,
    Stale,
    Submission,
    Transition,
)
from holdfast.ports import (
    Beat,
    Claimed,
    Detail,
    Due,
    Filter,
    Kept,
    Peek,
    Renewal,
    Store,
    TenantView,
)
from holdfast.testing.clock import ManualClock

STAGES = ("one", "two", "three")
LEASE_SECONDS = 30.0
FOLLOWERS = "followers"  # the queue of follow-up tasks
NO_LIMIT = 1_000_000
PATIENCE_SECONDS = 60.0  # by the machine's clock: an answer that takes longer never comes
ASKER = By(actor="ada", origin="contract", reason="because")

OPERATE: Mapping[Command, Callable[..., Transition]] = {
    Command.RELEASE: operate.release,
    Command.PAUSE: operate.pause,
    Command.RESUME: operate.resume,
    Command.CANCEL: operate.cancel,
    Command.RETRY: operate.retry,
    Command.ROLLBACK: operate.rollback,
    Command.DISCARD: operate.discard,
}
ASKED = {**OPERATE, Command.HOLD_BACK: operate.hold_back}  # a plan holds back, too


def patience() -> asyncio.Timeout:
    return asyncio.timeout(PATIENCE_SECONDS)


class StoreDriver:
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self._numbers = count(1)

    # -- submit

    def submission(
        self, *, payload: object = None, held: bool = False, **fields: Any
    ) -> Submission:
        now = self.clock.now()
        defaults: dict[str, Any] = {
            "id": f"task-{next(self._numbers):06d}",
            "type": "test.work",
            "stages": STAGES,
            "created_at": now,
            "status": Status.CREATED if held else Status.PENDING,
            "status_since": now,
            "updated_at": now,
        }
        task = Task(**(defaults | fields))
        home = self.store.partitioned_id(task.id, tenant=task.tenant, key=task.key)
        return self._submission(replace(task, id=home), payload, held=held)

    def follower(
        self, of: Task | None, name: str = "follower", *, payload: object = None, **fields: Any
    ) -> Submission:
        """Build a follow-up task in the partition of ``of``, or of its own tenant if it has one."""
        fields = {"queue": FOLLOWERS, "stages": ("tell",)} | fields
        submission = self.submission(payload=payload, id=name, **fields)
        if of is None or submission.task.tenant is not None:
            return submission
        return self.with_id(submission, self.store.colocated_id(name, task_id=of.id))

    def with_id(self, submission: Submission, task_id: str) -> Submission:
        task = replace(submission.task, id=task_id)
        payload = msgspec.json.decode(submission.payload)
        return self._submission(task, payload, held=submission.held)

    def _submission(self, task: Task, payload: object, *, held: bool) -> Submission:
        body = msgspec.json.encode(payload)
        digest = hashlib.blake2s(task.type.encode() + b"\n" + body).hexdigest()
        return decide.submit(task, body, digest, held=held)

    async def insert(self, *batch: Submission, depth_limit: int = NO_LIMIT) -> Sequence[Insertion]:
        return await self.store.tasks.insert(batch, depth_limit=depth_limit)

    async def insert_new(self, *, depth_limit: int = NO_LIMIT, **fields: Any) -> Insertion:
        (answer,) = await self.insert(self.submission(**fields), depth_limit=depth_limit)
        return answer

    async def submit(self, *, payload: object = None, held: bool = False, **fields: Any) -> Task:
        submission = self.submission(payload=payload, held=held, **fields)
        assert await self.insert(submission) == [Inserted(submission.task.id)]
        return await self.load(submission.task.id)

    async def submit_many(self, number: int, **fields: Any) -> list[str]:
        batch = [self.submission(**fields) for _ in range(number)]
        await self.insert(*batch)
        return [submission.task.id for submission in batch]

    # -- claim and hold

    async def claim(self, worker: str = "w-1", **options: Any) -> Sequence[Claimed]:
        defaults: dict[str, Any] = {
            "request": f"claim-{next(self._numbers)}",
            "queues": ("default",),
            "limit": 100,
            "lease_seconds": LEASE_SECONDS,
        }
        return await self.store.tasks.claim(worker, **(defaults | options))

    async def claim_ids(self, worker: str = "w-1", **options: Any) -> list[str]:
        return [claimed.task.id for claimed in await self.claim(worker, **options)]

    async def start(self, worker: str = "w-1", **fields: Any) -> Task:
        """Submit a task and claim it; nothing else may be ready."""
        submitted = await self.submit(**fields)
        task = await self.take(worker, queues=(submitted.queue,))
        assert task.id == submitted.id
        return task

    async def start_many(self, number: int, **fields: Any) -> list[Task]:
        """Submit so many tasks and claim them; nothing else may be ready."""
        await self.submit_many(number, **fields)
        return [claimed.task for claimed in await self.claim()]

    async def take(self, worker: str = "w-1", **options: Any) -> Task:
        """Claim the one task that is ready."""
        (claimed,) = await self.claim(worker, **options)
        return claimed.task

    async def begin(self, task: Task, *, alone: bool = False) -> None:
        """Report, with a renewal, that the task's stage has begun."""
        begun = position(task.last_completed, task.next_undo)
        noted = Progress(fraction=0.0, begun=begun, alone=alone)
        assert await self.renew(task, progress=noted) == [True]

    async def crash(
        self, task: Task, *, alone: bool = False, alone_from: int = SUSPECT_FROM
    ) -> None:
        """Let the holder die in the stage, and take its lease back."""
        await self.begin(task, alone=alone)
        self.clock.advance(LEASE_SECONDS + 1)
        await self.store.tasks.expire(limit=10, count_crashes=True, alone_from=alone_from)

    async def lapse(self) -> int:
        """Let every lease lapse and take it back; return how many were taken back."""
        self.clock.advance(LEASE_SECONDS + 1)
        return await self.store.tasks.expire(limit=10, count_crashes=True)

    async def promote_after(self, seconds: float) -> Due:
        """Let time pass, and make ready what has come due."""
        self.clock.advance(seconds)
        return await self.store.tasks.promote(limit=10)

    async def renew(
        self,
        *tasks: Task,
        worker: str = "w-1",
        progress: Progress | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> list[bool]:
        batch = [
            Renewal(task_id=task.id, lease_id=decide.lease_of(task).id, progress=progress)
            for task in tasks
        ]
        return list(await self.store.tasks.renew(beat(worker), batch, lease_seconds=lease_seconds))

    # -- decide, as the holder

    async def done(self, task: Task, result: object = "ok", **data: object) -> Transition:
        """Decide, as the executor does, that the present stage has returned."""
        now = self.clock.now()
        done = decide.Done(
            result=msgspec.json.encode(result), data=data, started_at=now, duration_seconds=1.5
        )
        if task.last_completed + 1 == len(task.stages) - 1:
            return decide.complete(task, done, now=now)
        checkpoint = await self.store.views.checkpoint(task.id)
        return decide.stage_done(task, done, checkpoint=checkpoint, now=now)

    async def decide_failure(self, task: Task, **options: Any) -> Transition:
        failed = self.failure(task, **options)
        checkpoint = await self.store.views.checkpoint(task.id)
        now = self.clock.now()
        return decide.stage_failed(task, failed, Retry(), checkpoint=checkpoint, now=now)

    def failure(
        self,
        task: Task,
        *,
        retry_seconds: float | None = 60.0,
        error: str = "ValueError",
        outage_seconds: float | None = None,
    ) -> decide.Failed:
        now = self.clock.now()
        failure = Failure(
            kind=FailureKind.STAGE,
            error=error,
            message="no luck",
            stage=task.at_stage or task.stages[-1],
            attempt=task.attempt,
            at=now,
            traceback="Traceback: …",
        )
        return decide.Failed(
            failure=failure,
            started_at=now,
            retry_seconds=retry_seconds,
            outage_seconds=outage_seconds,
        )

    # -- decide, as an operator

    def request(
        self, command: Command, task: Task, *, request: str | None = None, **options: Any
    ) -> Transition:
        name = request or f"request-{next(self._numbers)}"
        ask = operate.OperatorRequest(by=ASKER, now=self.clock.now(), request=name)
        return ASKED[command](task, ask, **options)

    # -- write

    async def apply(self, transition: Transition) -> Outcome:
        (outcome,) = await self.store.tasks.apply([transition])
        return outcome

    async def apply_request(self, command: Command, task: Task, **options: Any) -> Outcome:
        return await self.apply(self.request(command, task, **options))

    async def commit(self, transition: Transition) -> Task:
        outcome = await self.apply(transition)
        assert isinstance(outcome, Applied), f"{transition.task_id}: {outcome}"
        return outcome.task

    async def expect_stale(self, transition: Transition) -> Task | None:
        """Expect the answer STALE and no trace of the write; return the present record."""
        before = await self.store.views.detail(transition.task_id)
        outcome = await self.apply(transition)
        assert isinstance(outcome, Stale), f"{transition.task_id}: {outcome}"
        assert await self.store.views.detail(transition.task_id) == before
        return outcome.task

    async def finish_stage(self, task: Task, result: object = "ok", **data: object) -> Task:
        return await self.commit(await self.done(task, result, **data))

    async def start_past_stage(
        self, worker: str = "w-1", *, data: dict[str, object] | None = None, **fields: Any
    ) -> Task:
        """Start a task and finish its first stage, which keeps the data in the checkpoint."""
        return await self.finish_stage(await self.start(worker, **fields), **(data or {}))

    async def complete(self, task: Task) -> Task:
        """Run the remaining stages."""
        while task.lease is not None and task.at_stage is not None and not task.settled:
            task = await self.finish_stage(task)
        return task

    async def run(self, worker: str = "w-1", **fields: Any) -> Task:
        """Start a task and run all of its stages."""
        return await self.complete(await self.start(worker, **fields))

    async def suspend_new(self, *, error: str = "ValueError", **fields: Any) -> Task:
        """Start a task and let its first stage fail for good."""
        return await self.suspend(await self.start(**fields), error=error)

    async def fail(self, task: Task, **options: Any) -> Task:
        return await self.commit(await self.decide_failure(task, **options))

    async def suspend(self, task: Task, **options: Any) -> Task:
        return await self.fail(task, retry_seconds=None, **options)

    async def ask(self, command: Command, task: Task, **options: Any) -> Task:
        """Apply a command to the record as it is now, not to the caller's copy."""
        return await self.commit(self.request(command, await self.load(task.id), **options))

    async def pause(self, task: Task) -> Task:
        """Ask for a pause of a running task, and apply it at the boundary."""
        return await self._stop(Command.PAUSE, task)

    async def cancel(self, task: Task) -> Task:
        """Ask for the end of a running task, and apply it at the boundary."""
        return await self._stop(Command.CANCEL, task)

    async def _stop(self, command: Command, task: Task) -> Task:
        requested = await self.ask(command, task)
        return await self.commit(decide.boundary(requested, now=self.clock.now()))

    async def give_back(self, task: Task, *, delay_seconds: float = 0.0) -> Task:
        now = self.clock.now()
        terms: dict[str, Any] = {"interrupted": False, "delay_seconds": delay_seconds}
        return await self.commit(decide.give_back(task, "stopping", now=now, **terms))

    async def roll_back(self, task: Task) -> Task:
        """Ask for a rollback, claim the task, undo every stage and finish."""
        await self.ask(Command.ROLLBACK, task)
        task = await self.take()
        while task.next_undo >= 0:
            task = await self.commit(self.decide_undo(task))
        return await self.commit(decide.rolled_back(task, now=self.clock.now()))

    async def fail_undo(self, task: Task, **options: Any) -> Task:
        failed = self.failure(task, **({"retry_seconds": None} | options))
        return await self.commit(decide.undo_failed(task, failed, Retry(), now=self.clock.now()))

    async def fail_rollback(self, task: Task) -> Task:
        """Suspend a task, ask for its rollback, take it and let its undo fail for good."""
        await self.ask(Command.ROLLBACK, await self.suspend(task), force=True)
        return await self.fail_undo(await self.take())

    def decide_undo(self, task: Task) -> Transition:
        return decide.stage_undone(
            task, had_undo=True, data={}, duration_seconds=0.5, now=self.clock.now()
        )

    async def prune(self, kind: Kept, **terms: Any) -> int:
        defaults = {"older_than_seconds": 0.0, "limit": 100, "dry_run": False}
        return await self.store.admin.prune(kind, **(defaults | terms))

    # -- read

    async def load(self, task_id: str) -> Task:
        (task,) = await self.store.views.load([task_id])
        assert task is not None, task_id
        return task

    async def detail(self, task: Task) -> Detail:
        detail = await self.store.views.detail(task.id)
        assert detail is not None, task.id
        return detail

    async def checkpoint(self, task: Task) -> Checkpoint:
        checkpoint = await self.store.views.checkpoint(task.id)
        assert checkpoint is not None, task.id
        return checkpoint

    async def peek(self, task: Task) -> Peek:
        (peek,) = await self.store.views.peek([task.id])
        assert peek is not None, task.id
        return peek

    async def events(self, task: Task) -> list[str]:
        return [name_of(event) for event in (await self.detail(task)).events]

    async def last_event(self, task: Task) -> Event:
        return (await self.detail(task)).events[-1]

    async def find_ids(self, *, limit: int = 100, **where: Any) -> list[str]:
        """Return the ids of all tasks that a filter lets through, page by page."""
        find = partial(self.store.views.find, Filter(**where))
        return await collect_ids(find, "tasks", limit=limit)

    async def tenant(self, name: str) -> TenantView:
        (view,) = await self.store.views.tenants([name])
        return view

    async def line(self, tenant: str, *, limit: int = 10) -> list[str]:
        (view,) = await self.store.views.tenants([tenant], line_limit=limit)
        return list(view.line)


def build_audit(clock: ManualClock, about: str, command: str, *, before: str, after: str) -> Audit:
    now = clock.now()
    return Audit(task_id=about, command=command, by=ASKER, at=now, before=before, after=after)


def beat(worker: str = "w-1", **fields: Any) -> Beat:
    defaults: dict[str, Any] = {
        "worker": worker,
        "host": "host-1",
        "pid": 42,
        "types": ("test.work",),
        "queues": ("default",),
        "slots": 10,
        "running": 1,
        "started_at": 0.0,
    }
    return Beat(**(defaults | fields))


async def collect_ids(
    find: Callable[..., Awaitable[Any]], kind: str, *, limit: int, **where: Any
) -> list[str]:
    """Read all pages and return the ids of their records, in order."""
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await find(limit=limit, cursor=cursor, **where)
        records = getattr(page, kind)
        assert len(records) <= limit
        ids += [record.id for record in records]
        if (cursor := page.cursor) is None:
            return ids
