"""The ledger of the stage functions' calls, written outside of the store."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.domain.task import events as ev
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.runtime.context import Context
from verify.simulation.actors import tenant_holds
from verify.simulation.checks.book import Breach, Invocation, WorldBook
from verify.simulation.checks.task_steps import CRASH_LIMIT
from verify.simulation.deploys import CHANGING
from verify.simulation.loop import Process
from verify.simulation.stores.watched_store import WatchedStore

NOTICED_SECONDS = 1.0  # how soon a process that was stopped must see that its leases are over


class InvocationLedger:
    def __init__(self, book: WorldBook, store: WatchedStore) -> None:
        self._book = book
        self._store = store

    def begin(self, process: Process, ctx: Context, *, undo: bool) -> Invocation:
        run = Invocation(
            process=process,
            task_id=ctx.task_id,
            key=ctx.key,
            stage=ctx.stage,
            fence=ctx.fence,
            undo=undo,
            began_at=self._store.now,
            began_steady=process.loop.time(),
        )
        task = self._store.state.tasks.get(ctx.task_id)
        self._book.note(self._store.now, f"{process.name} begins {ctx.key} f{ctx.fence}")
        self._book.judge(self._may_begin(run, task), self._store.now, ctx.task_id)
        self._book.counts["undo begun" if undo else "stage begun"] += 1
        self._book.invocations[run.key, run.fence] = run
        self._book.holders[run.fence] = run
        if task is not None and not undo:
            self._book.begun[task.id, task.epoch].add(run.stage)
        return run

    def _may_begin(self, run: Invocation, task: Task | None) -> Iterator[Breach]:
        if task is None or task.settled:
            yield "I13", f"{run.stage} starts, but the task is {task and task.status}"
            return
        if task.lease is None or task.fence != run.fence:
            yield "I13", f"{run.stage} starts under fence {run.fence}, the record has {task.fence}"
        elif task.lease.until <= self._store.now:
            late = self._store.now - task.lease.until
            yield "I13", f"{run.stage} starts {late:.3f} s after its lease has ended"
        if task.status is not (Status.ROLLING_BACK if run.undo else Status.RUNNING):
            yield "I13", f"{run.stage} starts while the task is {task.status}"
        index = task.next_undo if run.undo else task.last_completed + 1
        named = task.stages[index] if 0 <= index < len(task.stages) else None
        if named != run.stage and (run.undo or task.type not in CHANGING):
            yield "I7", f"{run.stage} starts, the turn is number {index}'s of {task.stages}"
        expected = f"{task.id}/{task.epoch}/{run.stage}{'/undo' if run.undo else ''}"
        if run.key != expected:
            yield "I6", f"the key is {run.key}, not {expected}"
        if (run.key, run.fence) in self._book.invocations:
            yield "S7", f"one holder calls {run.stage} a second time"
        if task.crashes >= CRASH_LIMIT:
            yield "I16", f"{run.stage} starts after {task.crashes} crashes in a row"
        yield from tenant_holds.may_begin(self._store, run, task)
        asked = self._book.asked_at.get(task.id)
        if asked is not None and asked < self._book.held_at.get(run.fence, 0) and not run.undo:
            yield "S7", f"{run.stage} starts; its holder knows since v{asked} that it must not"

    def go_on(self, run: Invocation) -> None:
        """Check that a function that has waited still has its lease when it goes on."""
        task = self._store.state.tasks.get(run.task_id)
        holds = (
            task is not None
            and task.lease is not None
            and task.fence == run.fence
            and task.lease.until > self._store.now
        )
        now = run.process.loop.time()
        if holds or run.stubborn or now - run.process.thawed_at < NOTICED_SECONDS:
            return
        message = f"{run.stage} still runs under fence {run.fence}, its lease is over"
        self._book.fail("L1", message, self._store.now, run.task_id)

    def check_data(self, run: Invocation, ctx: Context) -> None:
        """Check that a stage finds the data of earlier stages, and none of a failed attempt."""
        task = self._store.state.tasks.get(run.task_id)
        if task is None or task.fence != run.fence:
            return
        done = list(task.stages[: task.last_completed + 1])
        trail = ctx.data.get("trail", [])
        if not run.undo and trail != done:
            message = f"{run.stage} finds the data of {trail}, completed are {done}"
            self._book.fail("C2", message, self._store.now, run.task_id)
        naps, taken = ctx.data.get("naps", 0), self._naps(run.task_id)
        if not run.undo and naps != taken:
            message = f"{run.stage} finds the data of {naps} snoozes, it has snoozed {taken} times"
            self._book.fail("C2", message, self._store.now, run.task_id)
        if "torn" in ctx.data:
            message = f"{run.stage} finds what a failed attempt wrote"
            self._book.fail("C2", message, self._store.now, run.task_id)

    def _naps(self, task_id: str) -> int:
        """Return how often the present stage has snoozed since it was begun."""
        naps = 0
        for event in reversed(self._book.events[task_id]):
            again = isinstance(event, ev.TaskRetried) and not event.from_checkpoint
            if again or isinstance(event, ev.StageCompleted | ev.CheckpointDiscarded):
                break
            naps += isinstance(event, ev.TaskSnoozed)
        return naps

    def end(self, run: Invocation) -> None:
        """Note the end of a function, however it ended; in a dead process none ever ends."""
        if run.process.alive:
            run.ended_at = self._store.now

    def note_result(self, run: Invocation, value: str) -> None:
        run.returned = value.encode()
        self._book.note(self._store.now, f"{run.process.name} returned {run.key}")

    def report_wrong(self, ctx: Context, message: str) -> None:
        self._book.fail("C2", f"{ctx.stage}: {message}", self._store.now, ctx.task_id)
