"""The one truth of a simulated world: the memory store, examined after each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Transition
from holdfast.ports import Clock
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.doctor import examine
from verify.simulation.actors import tenant_holds
from verify.simulation.checks import plan_steps
from verify.simulation.checks import task_steps as of_moves
from verify.simulation.checks.book import Breach, RecordMove, WorldBook
from verify.simulation.stores.watched_admin import WatchedAdmin
from verify.simulation.stores.watched_plans import WatchedPlans
from verify.simulation.stores.watched_tasks import WatchedTasks
from verify.simulation.stores.watched_triggers import WatchedTriggers

EXAMINED_EVERY_STEPS = 100


class WatchedStore(MemoryStore):
    """Reads the insides of the store on purpose: what it answers is what is being judged."""

    def __init__(self, clock: Clock, book: WorldBook) -> None:
        super().__init__(clock)
        self.book = book
        self.tasks: WatchedTasks = WatchedTasks(self)
        self.admin: WatchedAdmin = WatchedAdmin(self)
        self.triggers: WatchedTriggers = WatchedTriggers(self)
        self.plans: WatchedPlans = WatchedPlans(self)
        self.caller = ""  # the process whose request is carried out
        self.wrongly_lost: Callable[[Task], Iterable[Breach]] = lambda _: ()
        self.excused = False  # the caller has met an outage: leases lost now are no crashes

    @property
    def now(self) -> float:
        """Return the time by which leases and due times are judged."""
        return self.state.now()

    @property
    def steady(self) -> float:
        return self.state.clock.steady()

    @property
    def wall(self) -> float:
        """Return the time by which triggers are due and records are kept: it may be set."""
        return self.state.clock.now()

    # -- after a step

    def step(self, verb: str, tenants: set[str] | None = None) -> dict[str, RecordMove]:
        """Return what has changed; with ``tenants``, nobody else's may have (I17)."""
        book = self.book
        book.steps += 1
        moves = {move.task.id: move for move in self._moves_made()}
        for task_id, move in moves.items():
            known = book.events[task_id]
            known.extend(move.events)
            book.note(self.now, f"{self.caller} {verb} {_format_move(move)}")
            if tenants is not None and (move.task.tenant or task_id) not in tenants:
                book.fail("I17", f"{verb} for others changed it", self.now, task_id)
        return moves

    def _moves_made(self) -> Iterable[RecordMove]:
        known, born = self.book.tasks, 0
        for task_id, task in self.state.tasks.items():
            before = known.get(task_id)
            if before is not task:
                born += before is None
                told = len(self.book.events[task_id])
                events = tuple(event for _, event in self.state.bodies[task_id].events[told:])
                yield RecordMove(before=before, after=task, events=events)
        if len(known) + born > len(self.state.tasks):
            for task_id in [i for i in known if i not in self.state.tasks]:
                yield RecordMove(before=known[task_id], after=None, events=())

    def with_the_gone(
        self, moves: dict[str, RecordMove], batch: Sequence[Transition]
    ) -> dict[str, RecordMove]:
        """Add the last step of tasks without retention, which only their tombstones show."""
        for transition in batch:
            move = moves.get(transition.task_id)
            if move is not None and move.after is None:
                stone = self.state.tombstones.get(transition.task_id)
                if stone is None:
                    self.book.fail("I1", "it is gone without a trace", self.now, move.task.id)
                elif stone.task.version == transition.after.version:  # and not a zombie's write
                    moves[transition.task_id] = RecordMove(
                        before=move.before, after=stone.task, events=transition.events, gone=True
                    )
        return moves

    def judge(self, breaches: Iterable[Breach], moves: Mapping[str, RecordMove]) -> None:
        book, now = self.book, self.now
        only = next(iter(moves)) if len(moves) == 1 else None
        book.judge(breaches, now, only)
        for task_id, move in moves.items():
            if move.before is None or move.after is None or _has_new_version(move):
                book.judge(of_moves.check(book, move), now, task_id)
                book.judge(plan_steps.task_moved(self.plans.book, move), now, task_id)
                book.judge(tenant_holds.check_given_back(self, move), now, task_id)
                self._tally(move)
            if move.after is not None and not move.gone:
                book.judge(self._in_place(move.after), now, task_id)
        self._accept(moves)
        if book.steps % EXAMINED_EVERY_STEPS == 0:
            self.examine()

    def _accept(self, moves: Mapping[str, RecordMove]) -> None:
        book = self.book
        for task_id, move in moves.items():
            if move.after is None or move.gone:
                book.tasks.pop(task_id, None)
                book.gone[task_id] = move.task
                continue
            book.tasks[task_id] = move.after
            asked = move.after.pause_requested or move.after.cancel_requested
            if not asked:
                book.asked_at.pop(task_id, None)
            elif _has_new_version(move):
                book.asked_at.setdefault(task_id, move.after.version)

    def _tally(self, move: RecordMove) -> None:
        counts = self.book.counts
        for event in move.events:
            counts[f"event {ev.name_of(event)}"] += 1
            if isinstance(event, ev.TaskFailedEvent | ev.TaskRollbackFailed):
                counts[f"suspended {event.failure.kind}"] += 1
        if move.after is not None:
            counts[f"status {move.after.status}"] += 1
            counts["gone at once"] += move.gone
        else:
            counts["pruned"] += 1

    def _in_place(self, task: Task) -> Iterable[Breach]:
        """Check that a task is in exactly one place (I1), its tenant's line moves (L3), only one
        runs (I2)."""
        queued = self.state.is_queued(task)
        if queued != (task.place is Place.READY):
            yield "I1", f"it is {task.place} and {'in' if queued else 'not in'} its queue"
        if (task.lease is not None) != (task.place is Place.LEASED):
            yield "I3", f"it is {task.place} with lease {task.lease}"
        if task.tenant is None:
            return
        tenant = self.state.tenants[task.tenant]
        if ((task.order, task.id) in tenant.line) != (task.place is Place.LINE):
            yield "I1", f"it is {task.place}, its tenant's line says otherwise"
        if task.place is Place.LEASED:
            others = [
                other.id
                for other in self.state.tasks.values()
                if other.tenant == task.tenant and other.place is Place.LEASED
            ]
            if len(others) > 1:
                yield "I2", f"{len(others)} tasks run for {task.tenant}: {others}"
        if tenant.line and self._nobody_blocks(tenant.active):
            yield "L3", f"{len(tenant.line)} tasks of {task.tenant} wait for nobody"

    def _nobody_blocks(self, active_id: str | None) -> bool:
        active = self.state.tasks.get(active_id or "")
        if active is None or active.settled:
            return True
        return active.place in (Place.PARKED, Place.LATER) and not active.hold

    def examine(self) -> None:
        for finding in examine(self.state)[:1]:
            self.book.fail(finding.invariant, finding.message, self.now, finding.task_id)


def _has_new_version(move: RecordMove) -> bool:
    return move.before is None or move.after is None or move.before.version != move.after.version


def _format_move(move: RecordMove) -> str:
    if move.after is None:
        return f"{move.task.id} gone"
    names = ",".join(ev.name_of(event) for event in move.events)
    task = move.after
    return f"{task.id} v{task.version} {task.status} {task.place} f{task.fence} {names}"
