"""Checks of each verb of the store: who may write, what a repeat does, what is touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.placement import START, Next, Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import (
    Applied,
    Busy,
    Conflict,
    Existing,
    Inserted,
    Insertion,
    MovedOn,
    NoCheckpoint,
    Outcome,
    Stale,
    Submission,
    Transition,
)
from holdfast.ports import Claimed, Renewal
from verify.simulation.checks.book import Breach, RecordMove, WorldBook

if TYPE_CHECKING:
    from verify.simulation.stores.watched_store import WatchedStore

PLACES: Mapping[Next, tuple[Place, ...]] = {
    Next.READY: (Place.READY, Place.LINE),
    Next.LATER: (Place.LATER,),
    Next.PARKED: (Place.PARKED,),
    Next.SETTLED: (Place.SETTLED,),
}
SECOND = 1e-6  # clocks are floats


def check_insert(
    book: WorldBook,
    batch: Sequence[Submission],
    answers: Sequence[Insertion],
    moves: Mapping[str, RecordMove],
) -> Iterator[Breach]:
    for submission, answer in zip(batch, answers, strict=True):
        task = submission.task
        book.counts[f"answer {type(answer).__name__}"] += 1
        was_there = task.id in book.digests
        first = book.keys.get((task.tenant, task.key)) if task.key else None
        if was_there and answer != Inserted(task.id):
            yield "I9", f"a submit sent again was answered {answer}"
        elif was_there and task.id in moves and moves[task.id].before is None:
            yield "I9", f"a submit sent again made task {task.id} again"
        elif first not in (None, task.id):
            same = book.digests[first or ""] == submission.digest
            if answer != (Existing(first or "") if same else Conflict(first or "")):
                yield "I10", f"key {task.key} belongs to {first}, a submit with it got {answer}"
        elif isinstance(answer, Existing | Conflict):
            yield "I10", f"key {task.key} is free, but a submit with it got {answer}"
        if isinstance(answer, Inserted) and not was_there:
            book.digests[task.id] = submission.digest
            if task.key is not None:
                book.keys.setdefault((task.tenant, task.key), task.id)
            if task.id not in moves:
                yield "I1", f"task {task.id} was accepted and is nowhere"


def check_claim(
    book: WorldBook,
    store: WatchedStore,
    *,
    worker: str,
    request: str,
    answers: Sequence[Claimed],
    moves: Mapping[str, RecordMove],
) -> Iterator[Breach]:
    leases = {claimed.task.lease.id for claimed in answers if claimed.task.lease}
    last, given = book.claims.get(worker, ("", frozenset()))
    if request == last:
        book.counts["claim repeated"] += 1
        if not leases <= given or any(
            m.before and m.before.version < m.task.version for m in moves.values()
        ):
            yield "I9", "a claim sent again handed out something else"
        return
    book.claims[worker] = (request, frozenset(leases))
    for claimed in answers:
        yield from _check_claimed_task(book, store, claimed, moves.get(claimed.task.id))


def _check_claimed_task(
    book: WorldBook, store: WatchedStore, claimed: Claimed, move: RecordMove | None
) -> Iterator[Breach]:
    task = claimed.task
    before = move.before if move else None
    if before is None or task.lease is None:
        yield "I1", f"{task.id} was handed out, but its record did not change"
        return
    if before.place is not Place.READY:
        yield "I1", f"{task.id} was handed out while it was {before.place}"
    if before.status not in START.to or before.status is Status.PAUSED:
        yield "I14", f"{task.id} was handed out while it was {before.status}"
    yield from _check_fence(book, before, task)
    if task.tenant is not None:
        active = book.tasks.get(book.active.get(task.tenant, ""))
        resting = active and not active.settled and active.place in (Place.PARKED, Place.LATER)
        half_done = active and (active.last_completed >= 0 or active.begun)
        if active and resting and half_done and active.hold and active.id != task.id:
            yield "P7", f"{task.id} runs over {active.id}, which rests {active.status} and holds"
        book.active[task.tenant] = task.id
    bodies = store.state.bodies[task.id]
    kept = (bodies.payload, bodies.checkpoint, bodies.data, tuple(bodies.stages.values()))
    if kept != (claimed.payload, claimed.checkpoint, claimed.data, claimed.stages):
        yield "I11", f"{task.id} was handed out with other bodies than are stored"
    book.held_at[task.fence] = task.version


def _check_fence(book: WorldBook, before: Task, task: Task) -> Iterator[Breach]:
    line = task.tenant or task.id
    if task.lease and task.lease.fence != task.fence:
        yield "I5", f"fence {task.fence} with a lease of fence {task.lease.fence}"
    if task.fence <= max(book.fences[line], before.fence):
        yield "I5", f"fence {task.fence} after {max(book.fences[line], before.fence)}"
    book.fences[line] = task.fence


def check_apply(
    book: WorldBook,
    store: WatchedStore,
    batch: Sequence[Transition],
    answers: Sequence[Outcome],
    moves: Mapping[str, RecordMove],
) -> Iterator[Breach]:
    written = set()  # a worker may have both a zombie's run of a task and the new one
    follows: list[Submission] = []
    for transition, outcome in zip(batch, answers, strict=True):
        name = (transition.task_id, transition.request, transition.after.version)
        if isinstance(outcome, Applied) and name not in book.applied:
            written.add(transition.task_id)
            follows += transition.follows
    yield from check_follow_ups(book, follows, [s for t in batch for s in t.follows], moves)
    for transition, outcome in zip(batch, answers, strict=True):
        name = (transition.task_id, transition.request, transition.after.version)
        move = moves.get(transition.task_id)
        moved = move is not None and _new_version(move)
        book.counts[f"answer {type(outcome).__name__}"] += 1
        if name in book.applied:
            book.counts["write repeated"] += 1
            is_gone = transition.task_id in book.gone  # then only its last write is remembered
            done_again = moved and transition.task_id not in written
            if done_again or not (isinstance(outcome, Applied) or is_gone):
                said = type(outcome).__name__
                yield "I9", f"a write sent again was answered {said} or done again"
        elif isinstance(outcome, Applied):
            book.applied.add(name)
            if move is None or not moved:
                yield "I3", "a write was answered as applied, but nothing was written"
            else:
                yield from _check_write(book, store, transition, move)
        elif transition.task_id not in written:
            yield from _check_refusal(book, transition, outcome, moved=moved)


def check_follow_ups(
    book: WorldBook,
    right: Iterable[Submission],
    sent: Iterable[Submission],
    moves: Mapping[str, RecordMove],
) -> Iterator[Breach]:
    """Check the tasks that follow from writes: of all in ``sent``, only those in ``right`` may be
    there, whose transition was written now."""
    expected = {submission.task.id: submission for submission in right}
    for task_id, submission in expected.items():
        key = submission.task.tenant, submission.task.key
        is_new = task_id not in book.digests and key not in book.keys
        if is_new and task_id not in moves:
            yield "I1", f"task {task_id} follows from a write and is nowhere"
        if is_new:
            book.digests[task_id] = submission.digest
            if submission.task.key is not None:
                book.keys[submission.task.tenant, submission.task.key] = task_id
    for task_id in {submission.task.id for submission in sent} - expected.keys():
        if task_id in moves and moves[task_id].before is None:
            yield "I9", f"task {task_id} follows from a write that was not done"


def _check_write(
    book: WorldBook, store: WatchedStore, transition: Transition, move: RecordMove
) -> Iterator[Breach]:
    before = move.before
    if before is None or not _may_write(before, transition):
        yield "I3", f"a write of version {transition.after.version} was applied to {_state(before)}"
        return
    if transition.lease is not None and _decided_part(transition.before) != _decided_part(before):
        yield "I3", "a holder's write was decided over another record than the stored one"
    if transition.not_if_moved_on and _moved_on(book, before):
        yield "P7", "it was started although newer work of its tenant has run"
    _note_undo(book, transition)
    if transition.lease is not None:
        book.held_at[before.fence] = transition.after.version
    after = move.after
    if after is None or move.gone:
        return
    if transition.not_if_busy and after.place is Place.LINE:
        yield "P7", "it was let go and has to wait in its tenant's line"
    if _decided_part(after) != _decided_part(transition.after):
        yield "I3", "the record is not the one that was decided"
    if transition.next is Next.STAY:
        if (after.place, after.lease) != (before.place, before.lease):
            yield "I1", f"it should stay {before.place} and became {after.place}"
    elif after.place not in PLACES[transition.next] or after.lease is not None:
        yield "I1", f"it should go {transition.next} and became {after.place}"
    if transition.next is Next.LATER:
        due = store.now + transition.delay_seconds
        if after.due is None or abs(after.due - due) > SECOND:
            yield "L2", f"it is due at {after.due}, not in {transition.delay_seconds} s"
    yield from _check_bodies(store, transition, after)


def _note_undo(book: WorldBook, transition: Transition) -> None:
    stage, after = transition.stage, transition.after
    if stage is not None and stage.undo:
        book.undoable.add((after.id, after.epoch, stage.name))


def _check_bodies(store: WatchedStore, transition: Transition, after: Task) -> Iterator[Breach]:
    bodies = store.state.bodies[after.id]
    stage = transition.stage
    if stage is not None and bodies.stages.get(stage.index) != stage:
        yield "I7", f"the result of {stage.name} was not kept"
    if transition.data is not None and bodies.data != transition.data:
        yield "I7", "its data was not kept"
    if after.status in (Status.COMPLETED, Status.ROLLED_BACK):
        if bodies.checkpoint is not None:
            yield "C2", f"a task that is {after.status} has a checkpoint"
    elif transition.checkpoint is not None or stage is not None:
        yield from _check_checkpoint(bodies.checkpoint, after)
    if after.status is Status.COMPLETED and bodies.result is None:
        yield "I7", "it is completed and has no result"


def _check_checkpoint(body: bytes | None, after: Task) -> Iterator[Breach]:
    try:
        saved = ckpt.decode(body) if body is not None else None
    except SerialisationError as error:
        yield "C2", str(error)
        return
    if saved is None:
        yield "C2", f"stage {after.last_completed} was committed without a checkpoint"
    elif saved.last_completed_stage_index != after.last_completed:
        yield (
            "C2",
            f"the checkpoint is of {saved.last_completed_stage_index}, not {after.last_completed}",
        )
    elif saved.completed_stage_names != after.stages[: after.last_completed + 1]:
        yield "C2", f"the checkpoint names {saved.completed_stage_names}"


def _check_refusal(
    book: WorldBook, transition: Transition, outcome: Outcome, *, moved: bool
) -> Iterator[Breach]:
    before = book.tasks.get(transition.task_id)
    if moved:
        yield "I3", f"a write was answered {type(outcome).__name__} and written all the same"
    elif isinstance(outcome, Stale):
        if before is not None and _may_write(before, transition):
            yield "I3", f"a right write was refused: {_state(before)}"
        lease = before.lease.id if before and before.lease else None
        if transition.lease is not None:
            book.counts["zombie refused" if lease != transition.lease else "decided anew"] += 1
    elif isinstance(outcome, Busy) and not transition.not_if_busy:
        yield "I3", "it was refused for its tenant's other work, which it may wait for"
    elif isinstance(outcome, NoCheckpoint) and not transition.not_without_checkpoint:
        yield "I3", "it was refused for a checkpoint that it does not need"
    elif isinstance(outcome, MovedOn) and (before is None or not _moved_on(book, before)):
        yield "P7", "it was refused for newer work of its tenant, and there is none"


def check_renew(
    book: WorldBook,
    batch: Sequence[Renewal],
    answers: Sequence[bool],
    moves: Mapping[str, RecordMove],
    *,
    started_after: float,
) -> Iterator[Breach]:
    """Check renewals. A call that began before ``started_after`` hangs, and its lease must lapse.
    The lease of a task that waits between two stages for a suspect to end is kept."""
    for renewal, kept in zip(batch, answers, strict=True):
        before = book.tasks.get(renewal.task_id)
        holds = before is not None and before.lease and before.lease.id == renewal.lease_id
        if kept != bool(holds):
            done = "kept" if kept else "refused"
            yield "I3", f"the lease of {renewal.task_id} was {done} wrongly"
        run = book.present_call(before) if before and kept else None
        if run and run.began_at < started_after:
            yield "L1", f"the lease of {run.stage}, which hangs, was renewed"
    for move in moves.values():
        if move.before is None or move.after is None:
            yield "I17", f"a renewal changed {move.task.id}"
        elif msgspec.structs.replace(move.after, lease=move.before.lease) != move.before:
            yield "I3", f"a renewal changed more of {move.task.id} than its lease"


def check_expire(
    book: WorldBook,
    moves: Mapping[str, RecordMove],
    now: float,
    *,
    excused: bool,
    overdue_seconds: float,
) -> Iterator[Breach]:
    """Check leases that were taken back. A stage that ran for ``overdue_seconds`` is itself to
    blame for its crash."""
    for move in moves.values():
        before, after = move.before, move.after
        if before is None or after is None or before.lease is None:
            yield "I3", f"{move.task.id} was taken back, but nobody held it"
        elif before.lease.until > now:
            yield "L1", f"the lease of {before.id} was taken {before.lease.until - now:.3f} s early"
        elif after.lease is not None or after.place is not Place.READY:
            yield "L1", f"{after.id} was taken back and is {after.place}"
        else:
            yield from _check_blame(
                book, before, after, excused=excused, overdue_seconds=overdue_seconds
            )


def _check_blame(
    book: WorldBook, before: Task, after: Task, *, excused: bool, overdue_seconds: float
) -> Iterator[Breach]:
    """Check whether a crash is rightly counted, by the calls that really ran; the store knows them
    from the beats only."""
    run = book.present_call(before)
    if after.crashes > before.crashes:
        if run is None:
            if not before.lapses:  # else the begin was noted, and the process died before the call
                yield "I16", f"a crash of {before.id} was counted, but its stage had not begun"
        elif before.crashes >= SUSPECT_FROM and run.lasted_seconds < overdue_seconds:
            for other in book.beside(run):
                yield "I16", f"a crash of {before.id} counted, {other.key} ran beside it"
    elif run is not None and before.lapses and before.crashes < SUSPECT_FROM and not excused:
        yield (
            "I16",
            f"the crash of {before.id} in {run.stage} was not counted, and there was no outage",
        )


def check_promote(moves: Mapping[str, RecordMove], now: float) -> Iterator[Breach]:
    for move in moves.values():
        before = move.before
        if before is None or not _new_version(move):
            continue
        if before.place is not Place.LATER or before.due is None:
            yield "L2", f"{before.id} was promoted while it was {before.place}"
        elif before.due > now + SECOND:
            yield "L2", f"{before.id} was promoted {before.due - now:.3f} s early"


def check_prune(moves: Mapping[str, RecordMove], now: float) -> Iterator[Breach]:
    for move in moves.values():
        before = move.before
        if before is None or move.after is not None:
            yield "I1", f"cleaning up changed {move.task.id}"
        elif not before.settled:
            yield "I1", f"cleaning up deleted {before.id}, which is {before.status}"
        elif before.settled_at is None or before.settled_at + before.keep_seconds > now:
            yield "I1", f"cleaning up deleted {before.id} before its time"


def _new_version(move: RecordMove) -> bool:
    return move.before is None or move.after is None or move.before.version != move.after.version


def _may_write(before: Task, transition: Transition) -> bool:
    if before.version != transition.expects:
        return False
    if transition.lease is None:
        return before.lease is None or transition.next is Next.STAY
    return before.lease is not None and before.lease.id == transition.lease


def _moved_on(book: WorldBook, before: Task) -> bool:
    return bool(before.tenant and before.fence and book.fences[before.tenant] > before.fence)


def _decided_part(task: Task) -> Task:
    """Return the task without the fields that the store decides."""
    return msgspec.structs.replace(task, place=Place.HELD, order=0, due=None, lease=None, fence=0)


def _state(task: Task | None) -> str:
    if task is None:
        return "a task that is not there"
    lease = task.lease.id if task.lease else "none"
    return f"version {task.version}, lease {lease}"
