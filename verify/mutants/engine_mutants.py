"""Defects of what decides, executes, beats and asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import decide, operate, outage
from holdfast.domain.task.decide import Done, Failed
from holdfast.domain.task.placement import Next
from holdfast.domain.task.task import Failure, Task
from holdfast.domain.task.transition import Applied, Outcome, Transition
from holdfast.ports import Store, SwitchSetting
from holdfast.registry import StageDef
from holdfast.runtime.committer import Committer
from holdfast.runtime.services.drain_watch import DrainWatch
from holdfast.runtime.services.timers import Timers
from holdfast.runtime.worker import restore
from holdfast.runtime.worker.executor import ClaimedTask, HeldTenants, TaskExecution
from holdfast.runtime.worker.heartbeat import Heartbeat
from holdfast.runtime.worker.running_tasks import RunningTask, RunningTasks, Stop
from holdfast.runtime.worker.worker import Worker
from holdfast.stores.memory import tasks as memory_tasks
from verify.mutants.mutant import mutant

Real = Callable[..., Any]
UNDER_WAY = set[asyncio.Task[Outcome]]()  # a task that nobody refers to may be collected


@mutant(Committer, "write")
async def acknowledged_before_commit(
    real: Real, committer: Committer, transition: Transition
) -> Outcome:
    """The executor goes on while its write is still under way."""
    write = asyncio.create_task(real(committer, transition))
    UNDER_WAY.add(write)
    write.add_done_callback(UNDER_WAY.discard)
    return Applied(transition.after)


@mutant(decide, "complete")
def checkpoint_at_the_last_stage(real: Real, task: Task, done: Done, *, now: float) -> Transition:
    """The last stage leaves a checkpoint behind."""
    saved = ckpt.save(
        None,
        stages=task.stages,
        index=len(task.stages) - 1,
        data=done.data,
        now=now,
        owner="",
    )
    completed: Transition = real(task, done, now=now)
    return msgspec.structs.replace(completed, checkpoint=saved, drop_checkpoint=False)


@mutant(decide, "_failure_counts")
def retry_not_counted(real: Real, failures: int, *rest: Any) -> dict[str, Any]:
    """A failure is tried again and again."""
    return {**real(failures, *rest), "failures": failures - 1}


@mutant(decide, "stage_failed")
def one_retry_too_many(
    real: Real, task: Task, failed: Failed, policy: Any, **options: Any
) -> Transition:
    """The count is compared one too late."""
    return real(  # type: ignore[no-any-return]
        msgspec.structs.replace(task, failures=max(0, task.failures - 1)), failed, policy, **options
    )


@mutant(TaskExecution, "backward", seed=1)
async def rollback_forward(_: Real, run: TaskExecution) -> None:
    """Stages are undone in the order in which they ran."""
    run.align()
    last = run.task.next_undo
    while run.task.next_undo >= 0:
        stage = run.declared.stages[last - run.task.next_undo]
        outcome = await run.executor.attempts.undo(stage, run)
        if not isinstance(outcome, Done):
            return await run.give_back("it was stopped", interrupted=True)
        await run.commit_undo(stage, outcome)
    await run.commit(partial(decide.rolled_back, now=run.now))
    return None


@mutant(TaskExecution, "commit_undo")
async def undo_not_saved(_: Real, run: TaskExecution, __: StageDef, ___: Done) -> None:
    """An undo is not checkpointed: only the end of the rollback is written."""
    run.task = msgspec.structs.replace(run.task, next_undo=run.task.next_undo - 1)


@mutant(operate, "rollback", seed=5)
def half_done_stage_not_undone(real: Real, task: Task, *rest: Any, **options: Any) -> Transition:
    """A rollback leaves out the stage that was begun and did not end."""
    asked: Transition = real(task, *rest, **options)
    first = min(asked.after.next_undo, task.last_completed)
    after = msgspec.structs.replace(asked.after, next_undo=first)
    return msgspec.structs.replace(asked, after=after)


@mutant(TaskExecution, "commit_stage", seed=7)
async def pause_runs_the_stage_again(
    _: Real, run: TaskExecution, stage: StageDef, done: Done
) -> None:
    """A request that comes during a stage makes it run again."""
    decision = partial(decide.stage_done, done=done, checkpoint=run.checkpoint, now=run.now)
    saved = decision(run.task).checkpoint
    while not await run.try_commit(decision(run.task)):
        again = await run.executor.attempts.run(stage, run)
        if not isinstance(again, Done):
            return await run.give_back("it was stopped", interrupted=True)
        decision = partial(decide.stage_done, done=again, checkpoint=run.checkpoint, now=run.now)
    run.checkpoint, run.data = saved, dict(done.data)
    run.results[stage.name] = done.result
    return None


@mutant(ClaimedTask, "stop_as_requested", seed=5)
async def cancel_ignored(real: Real, claimed: ClaimedTask) -> bool:
    """A cancel that was asked for is not applied at the boundary."""
    return not claimed.task.cancel_requested and bool(await real(claimed))


@mutant(ClaimedTask, "stop_as_requested", seed=14)
async def withdrawn_pause_applied(_: Real, claimed: ClaimedTask) -> bool:
    """A pause that was taken back at the last moment is applied all the same."""
    if not (claimed.task.pause_requested or claimed.task.cancel_requested):
        return False
    await claimed.commit(partial(decide.boundary, now=claimed.now))
    return True


@mutant(RunningTask, "may_renew", seed=6)
def never_renewed(*_: Any) -> bool:
    """A lease is not renewed while its stage runs."""
    return False


@mutant(RunningTask, "may_renew", seed=9)
def hung_stage_renewed(_: Real, running: RunningTask, __: float) -> bool:
    """A lease is renewed past its stage's deadline."""
    return running.stop is None


@mutant(Heartbeat, "_note_lost", seed=62)
def lost_lease_unnoticed(*_: Any) -> None:
    """A run goes on when its lease is lost."""


@mutant(RunningTasks, "safe_until", seed=53)
def stopped_too_late(_: Real, running: RunningTasks, asked_at: float) -> float:
    """A run that cannot renew is stopped after its lease has ended."""
    return asked_at + running.lease_seconds * 1.4


@mutant(Heartbeat, "_patience_seconds", seed=24)
def beat_waits_too_long(_: Real, beat: Heartbeat, __: float) -> float:
    """A beat that hangs hides that a lease ends meanwhile."""
    return beat._lease_seconds


@mutant(Worker, "_type_is_served", seed=7)
async def outage_fails_the_run(_: Real, worker: Worker, name: str) -> bool:
    """A look at the other workers that fails is taken for a defect of the task."""
    live = await worker._store.views.workers(live_within_seconds=60)
    return any(one.live and name in one.beat.types for one in live)


@mutant(TaskExecution, "refusal", seed=35)
def poison_never_stops(real: Real, run: TaskExecution) -> Failure | None:
    """A task that kills its workers is run again and again."""
    run.task = msgspec.structs.replace(run.task, crashes=0)
    return real(run)  # type: ignore[no-any-return]


@mutant(TaskExecution, "give_back", seed=27)
async def drain_loses_the_task(*_: Any, **__: Any) -> None:
    """A worker that stops keeps what it has not finished."""


@mutant(RunningTask, "_stop", seed=92)
def drain_interrupts_commits(_: Real, running: RunningTask) -> None:
    """A worker that stops cancels a run in the middle of its write."""
    if running.stop in (Stop.LEASE_LOST, Stop.DRAIN):
        running.interrupt()


@mutant(operate, "retry", seed=1)
def epoch_not_raised(real: Real, task: Task, *rest: Any, **options: Any) -> Transition:
    """A start from scratch repeats the effect keys of the run before."""
    asked: Transition = real(task, *rest, **options)
    after = msgspec.structs.replace(asked.after, epoch=task.epoch)
    return msgspec.structs.replace(asked, after=after)


@mutant(ckpt, "save")
def data_not_saved(real: Real, *arguments: Any, **options: Any) -> ckpt.Checkpoint:
    """Leave the stage's data out of the checkpoint."""
    return real(*arguments, **{**options, "data": {}})  # type: ignore[no-any-return]


@mutant(Timers, "tick")
async def lapsed_leases_left(_: Real, timers: Timers) -> float:
    """Due times are looked at, lapsed leases are not."""
    store: Store = timers._store
    await store.tasks.promote(limit=500)
    return 0.5


@mutant(decide, "give_back")
def given_back_to_nobody(real: Real, *arguments: Any, **options: Any) -> Transition:
    """Park what a worker gives back instead of queueing it."""
    asked: Transition = real(*arguments, **options)
    return msgspec.structs.replace(asked, next=Next.PARKED)


@mutant(decide, "snooze", seed=32)
def snoozed_stage_not_undone(real: Real, *arguments: Any, **options: Any) -> Transition:
    """A stage that has snoozed is taken for one that was not begun."""
    asked: Transition = real(*arguments, **options)
    after = msgspec.structs.replace(asked.after, interrupted=False)
    return msgspec.structs.replace(asked, after=after)


@mutant(decide, "snooze")
def snooze_without_its_data(real: Real, *arguments: Any, **options: Any) -> Transition:
    """Lose the data that a stage has put down before it snoozed."""
    asked: Transition = real(*arguments, **options)
    return msgspec.structs.replace(asked, checkpoint=None, data=None)


@mutant(decide, "snooze", seed=7)
def snooze_over_a_request(real: Real, task: Task, *rest: Any, **options: Any) -> Transition:
    """A cancel or pause that waits is forgotten when the stage snoozes."""
    flags = {"cancel_requested": False, "pause_requested": False}
    asked: Transition = real(msgspec.structs.replace(task, **flags), *rest, **options)
    return msgspec.structs.replace(asked, before=task)


@mutant(ClaimedTask, "from_stored")
def writes_over_the_record_in_hand(_: Real, __: ClaimedTask, transition: Transition) -> Transition:
    """A write names the record with the code's stages as the one that was read."""
    return transition


@mutant(outage, "row_with", seed=10)
def row_of_outages_never_ends(real: Real, task: Task, *rest: Any, **options: Any) -> Any:
    """A row of outages goes on over failures and crashes."""
    row = real(task, *rest, **options)
    began = task.created_at if task.failure is not None else row.since
    return outage.OutageRow(count=task.outages + 1, since=min(row.since, began))


@mutant(outage, "row_with", seed=10)
def row_of_outages_begins_anew(_: Real, *__: Any, now: float) -> Any:
    """Each outage is the first one of a row, so that it never lasts too long."""
    return outage.OutageRow(count=1, since=now)


@mutant(outage, "are_outages", seed=10)
def outages_are_failures(_: Real, __: Any) -> bool:
    """An outage uses up the tries of its stage."""
    return False


@mutant(restore, "missing_undo", seed=111)
def vanished_undo_passed_over(*_: Any, **__: Any) -> None:
    """A rollback passes over a stage whose undo is gone from the code."""


@mutant(TaskExecution, "restore")
async def starts_over_unasked(real: Real, run: TaskExecution) -> bool:
    """A checkpoint that is no good is discarded, whatever the type says."""
    checkpoints = run.declared.checkpoints
    run.declared.checkpoints = ckpt.Policy(
        on_invalid=ckpt.RESTART, max_age_seconds=checkpoints.max_age_seconds
    )
    try:
        return bool(await real(run))
    finally:
        run.declared.checkpoints = checkpoints


@mutant(memory_tasks, "is_counted")
def crash_blames_all(*_: Any, **__: Any) -> bool:
    """Each task of a worker that died is blamed, also one that had not begun."""
    return True


@mutant(Heartbeat, "renew_now")
async def begun_is_not_noted(*_: Any) -> None:
    """Begin what may kill its worker at once before the store knows of it."""


@mutant(HeldTenants, "is_held", seed=1)
def stages_begin_under_a_hold(_: Real, holds: HeldTenants, tenant: str | None) -> bool:
    """A worker that has seen the hold of a tenant goes on with its task."""
    del holds, tenant
    return False


@mutant(DrainWatch, "_apply_holds", seed=26)
async def holds_not_looked_at(_: Real, orders: DrainWatch, holds: Sequence[SwitchSetting]) -> None:
    """A worker does not learn that a tenant is held, nor that the time of a hold is up."""
    del orders, holds
