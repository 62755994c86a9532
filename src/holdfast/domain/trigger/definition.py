"""Triggers from their definitions: new ones, redefined ones, and those of another tenant."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict, replace

from holdfast.domain.trigger import schedule as times
from holdfast.domain.trigger.firing import trigger_time
from holdfast.domain.trigger.schedule import Every, Once, Schedule
from holdfast.domain.trigger.trigger import (
    UNFINISHED,
    Definition,
    Misfire,
    Trigger,
    TriggerChange,
    TriggerStatus,
)


def definition_of(trigger: Trigger) -> Definition:
    return Definition(**{name: getattr(trigger, name) for name in Definition.__struct_fields__})


def has_definition(trigger: Trigger, definition: Definition) -> bool:
    """Return whether a trigger has this definition; the order of the payload's fields is free."""
    return _comparable(definition_of(trigger)) == _comparable(definition)


def _comparable(definition: Definition) -> Definition:
    return replace(definition, payload=msgspec.Raw(canonical(bytes(definition.payload))))


def canonical(body: bytes) -> bytes:
    """Return JSON with sorted fields, so that the same value is always the same text."""
    if b"{" not in body:
        return body
    return msgspec.json.encode(msgspec.json.decode(body), order="sorted")


def new_trigger(
    definition: Definition, trigger_id: str, *, now: float, chance: float, request: str
) -> Trigger:
    """Return a new trigger that is not saved yet."""
    fire_time = first_time(definition.schedule, now)
    trigger_at = None
    if fire_time is not None:
        trigger_at = trigger_time(definition.schedule, fire_time, definition.jitter_seconds, chance)
    return Trigger(
        id=trigger_id,
        created_at=now,
        updated_at=now,
        fire_time=fire_time,
        trigger_at=trigger_at,
        request=request,
        **asdict(definition),
    )


def create(
    definition: Definition,
    trigger_id: str,
    *,
    now: float,
    chance: float,
    request: str,
    owes_start: bool = False,
) -> TriggerChange:
    """Create a trigger, unless there is one of that id meanwhile. ``owes_start``: the start of an
    interval was given; if it is past, the trigger fires at once."""
    before = new_trigger(definition, trigger_id, now=now, chance=chance, request=request)
    if owes_start and (owed := started_time(definition, now)) is not None:
        before = replace(before, fire_time=owed, trigger_at=owed)
    return TriggerChange(before=before, after=replace(before, version=before.version + 1))


def supersede(
    trigger: Trigger, definition: Definition, *, now: float, chance: float, request: str
) -> TriggerChange:
    """Replace a trigger of another tenant by a new one that keeps nothing of it."""
    fresh = new_trigger(definition, trigger.id, now=now, chance=chance, request=request)
    return TriggerChange(before=trigger, after=replace(fresh, version=trigger.version + 1))


def redefine(
    trigger: Trigger, definition: Definition, *, now: float, chance: float, request: str
) -> TriggerChange:
    """Redefine a trigger. Its counters and a person's pause stay. Its due fire time stays if the
    schedule is the same; the times of another schedule count from now on."""
    fresh = new_trigger(definition, trigger.id, now=now, chance=chance, request=request)
    fire_time, trigger_at = _owed(trigger, definition) or (fresh.fire_time, fresh.trigger_at)
    is_paused = trigger.status is TriggerStatus.PAUSED
    after = replace(
        fresh,
        created_at=trigger.created_at,
        version=trigger.version + 1,
        status=trigger.status if is_paused else fresh.status,
        fire_time=fire_time,
        trigger_at=None if is_paused else trigger_at,
        reason=trigger.reason if is_paused else None,
        asked=trigger.asked,
        last_fire_time=trigger.last_fire_time,
        last_task=trigger.last_task,
        fired=trigger.fired,
        missed=trigger.missed,
    )
    return TriggerChange(before=trigger, after=after)


def _owed(trigger: Trigger, definition: Definition) -> tuple[float, float] | None:
    """Return the fire time that the trigger still owes, and when it is due."""
    if trigger.schedule != definition.schedule:
        return None
    if trigger.status in UNFINISHED and trigger.fire_time is not None:
        at = trigger.fire_time
        return at, at if trigger.trigger_at is None else trigger.trigger_at
    if trigger.unknown_since is None:
        return None
    # It was dropped because no worker knew its type, since the newest of these times.
    newest = times.latest(trigger.schedule, trigger.created_at, trigger.unknown_since, 1)
    return (newest[0], newest[0]) if newest else None


def started_time(definition: Definition, now: float) -> float | None:
    """Return the fire time that an interval owes since its start: the newest, or with catch-up the
    first, after which the others follow. None: the start is in the future."""
    schedule = definition.schedule
    if not isinstance(schedule, Every) or schedule.start >= now:
        return None
    if definition.misfire is Misfire.CATCH_UP:
        return schedule.start
    return next(iter(times.latest(schedule, schedule.start, now, 1)), None)


def first_time(schedule: Schedule, now: float) -> float | None:
    """Return the first fire time; one in the past counts only if the schedule has no other."""
    match schedule:
        case Once(at=at):
            return at
        case Every(start=start) if start >= now:
            return start
        case _:
            return times.next_after(schedule, now)
