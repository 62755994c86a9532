"""Defects of triggers: of what decides on them, and of their store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from holdfast.domain.trigger import firing, schedule
from holdfast.domain.trigger.trigger import Misfire, Trigger, TriggerChange, TriggerOutcome
from holdfast.stores.memory.triggers import MemoryTriggers
from verify.mutants.mutant import mutant

Real = Callable[..., Any]


@mutant(firing, "fire", seed=4)
def fires_without_moving_on(real: Real, trigger: Trigger, *rest: Any, **options: Any) -> Any:
    """A trigger makes its task and waits for the same time again."""
    change: TriggerChange = real(trigger, *rest, **options)
    if change.after.fire_time is None:
        return change
    after = replace(change.after, fire_time=trigger.fire_time, trigger_at=options["now"] + 1)
    return replace(change, after=after)


@mutant(firing, "fire", seed=4)
def moves_on_without_its_task(real: Real, *arguments: Any, **options: Any) -> Any:
    """A trigger goes to its next time, and the task is to be made afterwards."""
    change: TriggerChange = real(*arguments, **options)
    return replace(change, submissions=(), unless_unfinished=None)


@mutant(firing, "_task_in_the_way", seed=4)
def overlap_ignored(*_: Any) -> None:
    """A trigger fires over its last task, whatever its policy says."""


@mutant(firing, "_times_to_fire", seed=4)
def misfire_skip_as_once(real: Real, trigger: Trigger, found: list[float], now: float) -> Any:
    """Times that were missed by more than the grace make a task all the same."""
    if trigger.misfire is Misfire.SKIP:
        return found[-1:]
    return real(trigger, found, now)


@mutant(firing, "_times_to_fire", seed=64)
def catches_up_with_the_oldest(real: Real, trigger: Trigger, found: list[float], now: float) -> Any:
    """Make up for the oldest of too many missed times."""
    if trigger.misfire is Misfire.CATCH_UP:
        return found[: trigger.catch_up_max]
    return real(trigger, found, now)


@mutant(firing, "put_off_unknown", seed=22)
def unknown_type_loses_the_trigger(_: Real, trigger: Trigger, *, now: float, **__: Any) -> Any:
    """A trigger whose type is not known here has ended."""
    end = {"fire_time": None, "trigger_at": None, "ended_at": now}
    return firing._by_holder(trigger, firing.C.FINISH, now=now, **end)


@mutant(firing, "pause", seed=10)
def paused_trigger_keeps_its_time(real: Real, trigger: Trigger, *rest: Any) -> Any:
    """A trigger that a person paused goes on waiting for its time."""
    change: TriggerChange = real(trigger, *rest)
    return replace(change, after=replace(change.after, trigger_at=trigger.trigger_at))


@mutant(firing, "resume", seed=40)
def resume_forgets_what_passed(real: Real, trigger: Trigger, ask: Any) -> Any:
    """The times that passed during a pause are neither made up for nor counted."""
    change: TriggerChange = real(trigger, ask)
    later = schedule.next_after(trigger.schedule, ask.now)
    if later is None:
        return change
    return replace(change, after=replace(change.after, fire_time=later, trigger_at=later))


@mutant(MemoryTriggers, "_apply", seed=4)
def trigger_version_not_compared(
    real: Real, store: MemoryTriggers, change: TriggerChange, depth_limit: int
) -> TriggerOutcome:
    """Let a former holder of a trigger write to it for ever."""
    there = store._state.triggers.get(change.after.id)
    return real(store, replace(change, before=there or change.before), depth_limit)  # type: ignore[no-any-return]


@mutant(MemoryTriggers, "_apply", seed=4)
def task_made_although_refused(
    real: Real, store: MemoryTriggers, change: TriggerChange, depth_limit: int
) -> TriggerOutcome:
    """The tasks go in before the trigger's version is looked at."""
    for submission in change.submissions:
        store._state.insert(submission, depth_limit)
    return real(store, change, depth_limit)  # type: ignore[no-any-return]


@mutant(MemoryTriggers, "_is_leased", seed=4)
def trigger_lease_ignored(*_: Any) -> bool:
    """A trigger that a scheduler has is handed out to the next one, too."""
    return False


@mutant(MemoryTriggers, "_free", seed=106)
def lapsed_trigger_left(real: Real, store: MemoryTriggers) -> Any:
    """Leave the triggers of a dead scheduler to nobody."""
    return [(at, trigger) for at, trigger in real(store) if trigger.owner is None]


@mutant(MemoryTriggers, "_is_unfinished", seed=4)
def overlap_not_looked_at_by_the_store(*_: Any) -> bool:
    """The store takes every last task for ended."""
    return False
