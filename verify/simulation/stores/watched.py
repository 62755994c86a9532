"""The one truth of a simulated world: the memory store, examined after each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from holdfast.domain.audit import Audit
from holdfast.domain.task import events as ev
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.placement import Place
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports import Beat, Claimed, Clock, Due, Kept, Renewal, Switch
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.doctor import examine
from verify.simulation.actors import tenant_holds
from verify.simulation.checks import plan_steps, verbs
from verify.simulation.checks import task_steps as of_moves
from verify.simulation.checks.book import Book, Breach, Move
from verify.simulation.stores.watched_plans import WatchedPlans
from verify.simulation.stores.watched_triggers import WatchedTriggers

EXAMINED_EVERY_STEPS = 100
STAGE_TIMEOUT_SECONDS = 6.0
GRACE_SECONDS = 2.0
HANGS_SECONDS = STAGE_TIMEOUT_SECONDS + GRACE_SECONDS + 1.0


class WatchedStore(MemoryStore):
    """Reads the insides of the store on purpose: what it answers is what is being judged."""

    def __init__(self, clock: Clock, book: Book) -> None:
        super().__init__(clock)
        self.book = book
        self.triggers: WatchedTriggers = WatchedTriggers(self)
        self.plans: WatchedPlans = WatchedPlans(self)
        self.caller = ""  # the process whose request is carried out
        self.wrongly_lost: Callable[[Task], Iterable[Breach]] = lambda _: ()
        self.excused = False  # the caller has met an outage: leases lost now are no crashes

    @property
    def now(self) -> float:
        """By which leases and due times are judged."""
        return self._now()

    @property
    def steady(self) -> float:
        return self._clock.steady()

    @property
    def wall(self) -> float:
        """By which triggers are due and records are kept: it may be set."""
        return self._clock.now()

    # -- the verbs that write

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        answers = await super().insert(batch, depth_limit=depth_limit)
        moves = self.step("insert", {s.task.tenant or s.task.id for s in batch})
        self.judge(verbs.inserted(self.book, batch, answers, moves), moves)
        return answers

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        answers = await super().claim(
            worker, request=request, queues=queues, limit=limit, lease_seconds=lease_seconds
        )
        moves = self.step("claim", {c.task.tenant or c.task.id for c in answers})
        breaches = verbs.claimed(
            self.book, self, worker=worker, request=request, answers=answers, moves=moves
        )
        self.judge(breaches, moves)
        self.book.judge(tenant_holds.claimed(self, moves.values()), self.now)
        return answers

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        answers = await super().apply(batch)
        tasks = [task for t in batch for task in (t.after, *(one.task for one in t.follows))]
        moves = self.step("apply", {task.tenant or task.id for task in tasks})
        moves = self._with_the_gone(moves, batch)
        self.judge(verbs.applied(self.book, self, batch, answers, moves), moves)
        driver = "" if self.excused else self.caller
        self.book.judge(plan_steps.let_go(self.plans.book, batch, answers, driver=driver), self.now)
        return answers

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        answers = await super().renew(beat, batch, lease_seconds=lease_seconds)
        moves = self.step("renew", None)
        after = float("-inf") if self.excused else self.now - HANGS_SECONDS
        breaches = verbs.renewed(self.book, batch, answers, moves, started_after=after)
        self.judge(breaches, moves)
        return answers

    async def leave(self, worker: str) -> None:
        await super().leave(worker)
        self.book.claims.pop(worker, None)  # a claim that comes later than this is a new one

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        count = await super().expire(
            limit=limit, count_crashes=count_crashes, alone_from=alone_from
        )
        moves = self.step("expire", None)
        breaches = verbs.expired(
            self.book,
            moves,
            self.now,
            excused=self.excused,
            overdue_seconds=STAGE_TIMEOUT_SECONDS,
        )
        self.judge(breaches, moves)
        for move in moves.values():
            if move.before is not None:
                self.book.judge(self.wrongly_lost(move.before), self.now, move.before.id)
        return count

    async def promote(self, *, limit: int) -> Due:
        due = await super().promote(limit=limit)
        moves = self.step("promote", None)
        self.judge(verbs.promoted(moves, self.now), moves)
        return due

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        count = await super().prune(
            kind,
            older_than_seconds=older_than_seconds,
            limit=limit,
            dry_run=dry_run,
            ignore_keep=ignore_keep,
        )
        moves = self.step(f"prune {kind}", None)
        self.judge(verbs.pruned(moves, self.wall), moves)
        return count

    async def throw(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        changed = await super().throw(switch, name, on=on, audit=audit, until=until)
        if switch is Switch.HOLD:
            told = "release" if on else "hold"
            self.book.note(self.now, f"{self.caller} {told} {name} {until} {changed}")
            breaches = tenant_holds.thrown(self.book, self, name, on=on, until=until)
            self.book.judge(breaches, self.now)
        return changed

    # -- after a step

    def step(self, verb: str, tenants: set[str] | None = None) -> dict[str, Move]:
        """What has changed; with ``tenants``, nobody else's may have (I17)."""
        book = self.book
        book.steps += 1
        moves = {move.task.id: move for move in self._moves_made()}
        for task_id, move in moves.items():
            known = book.events[task_id]
            known.extend(move.events)
            book.note(self.now, f"{self.caller} {verb} {_told(move)}")
            if tenants is not None and (move.task.tenant or task_id) not in tenants:
                book.fail("I17", f"{verb} for others changed it", self.now, task_id)
        return moves

    def _moves_made(self) -> Iterable[Move]:
        known, born = self.book.tasks, 0
        for task_id, task in self._tasks.items():
            before = known.get(task_id)
            if before is not task:
                born += before is None
                told = len(self.book.events[task_id])
                events = tuple(event for _, event in self._bodies[task_id].events[told:])
                yield Move(before=before, after=task, events=events)
        if len(known) + born > len(self._tasks):
            for task_id in [i for i in known if i not in self._tasks]:
                yield Move(before=known[task_id], after=None, events=())

    def _with_the_gone(
        self, moves: dict[str, Move], batch: Sequence[Transition]
    ) -> dict[str, Move]:
        """A task that was not kept at all: its last step can only be seen from outside."""
        for transition in batch:
            move = moves.get(transition.task_id)
            if move is not None and move.after is None:
                stone = self._tombstones.get(transition.task_id)
                if stone is None:
                    self.book.fail("I1", "it is gone without a trace", self.now, move.task.id)
                elif stone.task.version == transition.after.version:  # and not a zombie's write
                    moves[transition.task_id] = Move(
                        before=move.before, after=stone.task, events=transition.events, gone=True
                    )
        return moves

    def judge(self, breaches: Iterable[Breach], moves: Mapping[str, Move]) -> None:
        book, now = self.book, self.now
        only = next(iter(moves)) if len(moves) == 1 else None
        book.judge(breaches, now, only)
        for task_id, move in moves.items():
            if move.before is None or move.after is None or _has_new_version(move):
                book.judge(of_moves.check(book, move), now, task_id)
                book.judge(plan_steps.task_moved(self.plans.book, move), now, task_id)
                book.judge(tenant_holds.moved(self, move), now, task_id)
                self._tally(move)
            if move.after is not None and not move.gone:
                book.judge(self._in_place(move.after), now, task_id)
        self._accept(moves)
        if book.steps % EXAMINED_EVERY_STEPS == 0:
            self.examine()

    def _accept(self, moves: Mapping[str, Move]) -> None:
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

    def _tally(self, move: Move) -> None:
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
        """It is in exactly one place (I1), its tenant's line moves (L3), only one runs (I2)."""
        queued = task.id in self._ready[task.queue]
        if queued != (task.place is Place.READY):
            yield "I1", f"it is {task.place} and {'in' if queued else 'not in'} its queue"
        if (task.lease is not None) != (task.place is Place.LEASED):
            yield "I3", f"it is {task.place} with lease {task.lease}"
        if task.tenant is None:
            return
        tenant = self._tenants[task.tenant]
        if ((task.order, task.id) in tenant.line) != (task.place is Place.LINE):
            yield "I1", f"it is {task.place}, its tenant's line says otherwise"
        if task.place is Place.LEASED:
            others = [
                other.id
                for other in self._tasks.values()
                if other.tenant == task.tenant and other.place is Place.LEASED
            ]
            if len(others) > 1:
                yield "I2", f"{len(others)} tasks run for {task.tenant}: {others}"
        if tenant.line and self._nobody_blocks(tenant.active):
            yield "L3", f"{len(tenant.line)} tasks of {task.tenant} wait for nobody"

    def _nobody_blocks(self, active_id: str | None) -> bool:
        active = self._tasks.get(active_id or "")
        if active is None or active.settled:
            return True
        return active.place in (Place.PARKED, Place.LATER) and not active.hold

    def examine(self) -> None:
        for finding in examine(self, fix=False)[:1]:
            self.book.fail(finding.invariant, finding.says, self.now, finding.task_id)


def _has_new_version(move: Move) -> bool:
    return move.before is None or move.after is None or move.before.version != move.after.version


def _told(move: Move) -> str:
    if move.after is None:
        return f"{move.task.id} gone"
    names = ",".join(ev.name_of(event) for event in move.events)
    task = move.after
    return f"{task.id} v{task.version} {task.status} {task.place} f{task.fence} {names}"
