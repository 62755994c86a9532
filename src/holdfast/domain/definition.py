"""What a trigger is to do, as it was asked for or declared: its record without its life."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from holdfast.domain import schedule as times
from holdfast.domain.firing import look_at
from holdfast.domain.schedule import Every, Once, Schedule
from holdfast.domain.trigger import (
    CATCH_UP_MAX,
    GRACE_SECONDS,
    KEEP_SECONDS,
    Misfire,
    Overlap,
    Trigger,
    TriggerChange,
    TriggerStatus,
)


class Definition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    schedule: Schedule
    target: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    tenant: str | None = None
    queue: str | None = None
    user: Any = None
    misfire: Misfire = Misfire.ONCE
    catch_up_max: int = CATCH_UP_MAX
    grace_seconds: float = GRACE_SECONDS
    overlap: Overlap = Overlap.ALLOW
    jitter_seconds: float = 0.0
    declared: bool = False
    keep_seconds: float = KEEP_SECONDS


def definition_of(trigger: Trigger) -> Definition:
    return Definition(**{name: getattr(trigger, name) for name in Definition.__struct_fields__})


def same(trigger: Trigger, definition: Definition) -> bool:
    return definition_of(trigger) == definition


def begun(
    definition: Definition, trigger_id: str, *, now: float, chance: float, request: str
) -> Trigger:
    """A new trigger, to be saved."""
    fire_time = first_time(definition.schedule, now)
    look = None
    if fire_time is not None:
        look = look_at(definition.schedule, fire_time, definition.jitter_seconds, chance)
    return Trigger(
        id=trigger_id,
        created_at=now,
        updated_at=now,
        fire_time=fire_time,
        trigger_at=look,
        request=request,
        **asdict(definition),
    )


def redefine(
    trigger: Trigger, definition: Definition, *, now: float, chance: float, request: str
) -> TriggerChange:
    """Its times count from now on; its counters and a person's pause stay."""
    fresh = begun(definition, trigger.id, now=now, chance=chance, request=request)
    is_paused = trigger.status is TriggerStatus.PAUSED
    after = replace(
        fresh,
        created_at=trigger.created_at,
        version=trigger.version + 1,
        status=trigger.status if is_paused else fresh.status,
        trigger_at=None if is_paused else fresh.trigger_at,
        reason=trigger.reason if is_paused else None,
        last_fire_time=trigger.last_fire_time,
        last_task=trigger.last_task,
        fired=trigger.fired,
        missed=trigger.missed,
    )
    return TriggerChange(before=trigger, after=after)


def first_time(schedule: Schedule, now: float) -> float | None:
    """A time in the past counts only where it is the only one."""
    match schedule:
        case Once(at=at):
            return at
        case Every(start=start) if start >= now:
            return start
        case _:
            return times.next_after(schedule, now)
