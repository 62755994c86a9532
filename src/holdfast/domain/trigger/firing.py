"""Changes of a trigger: it fires, is put off, is suspended, or follows a person's command.

Nothing is written here. A scheduler decides about all due fire times of a trigger that it holds:

**once** makes one task for all of them, whether they are late or not. A live scheduler looks within
a second of each fire time, and no two fire times are closer, so it leaves none out. **skip** makes
a task for each fire time within its grace. **catch up** makes one for each of the newest
``catch_up_max``, oldest first. A fire time without a task is counted as missed, up to a bound, so
that a decision costs the same after a day and after a year.

Lateness is counted from the end of the jitter. With an overlap policy other than allow, a decision
makes one task only, as its tasks would overlap each other; the other fire times stay due.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.audit import Audit
from holdfast.domain.backoff import doubled_seconds
from holdfast.domain.durations import format_duration
from holdfast.domain.errors import HoldfastError
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.transition import Submission
from holdfast.domain.trigger import schedule as times
from holdfast.domain.trigger.schedule import Once, Schedule
from holdfast.domain.trigger.trigger import (
    MACHINE,
    UNFINISHED,
    Misfire,
    Overlap,
    Trigger,
    TriggerChange,
    TriggerCommand,
)

RETRY_LIMIT = 5
RETRY_SECONDS = (1.0, 60.0)  # doubled from the first up to the second
PATIENCE_SECONDS = (1.0, 30.0)
QUEUE_SHARE = 0.1  # of the time waited: the end of the last task may be noticed so much later
OTHERS_SECONDS = 1.0  # for another worker to take the trigger
NO_ROOM_SECONDS = 5.0
PUT_OFF_MOST_SECONDS = max(RETRY_SECONDS[1], PATIENCE_SECONDS[1])
AHEAD_SECONDS = 5.0  # two correct clocks may differ by so much
TASKS_A_CHANGE = 100
FIRE_TIMES_MAX = 1_000  # older ones are not even counted

NOT_DECLARED = "no longer declared in code"

C = TriggerCommand


class DueFireTimes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The due fire times that a scheduler decides about."""

    times: tuple[float, ...]  # those that make a task now, oldest first
    answered: float  # the last fire time that is decided, with a task or without
    missed: int  # decided fire times without a task
    newest: float
    count: int  # up to the newest


def due(trigger: Trigger, *, now: float) -> DueFireTimes:
    """Return the due fire times; ``now``: when it was claimed, by the clock that found it due."""
    first = _fire_time(trigger)
    now = max(now, first)  # a store may keep its times in coarser steps
    limit = max(FIRE_TIMES_MAX, trigger.catch_up_max)
    # Empty: the zone has new rules, and the time that it waited for no longer exists.
    due_times = times.latest(trigger.schedule, first, now, limit)
    wanted = _times_to_fire(trigger, due_times, now)
    chosen = wanted[: TASKS_A_CHANGE if trigger.overlap is Overlap.ALLOW else 1]
    newest = due_times[-1] if due_times else first
    answered = newest if len(chosen) == len(wanted) else chosen[-1]
    missed = sum(at <= answered for at in due_times) - len(chosen)
    return DueFireTimes(
        times=tuple(chosen), answered=answered, missed=missed, newest=newest, count=len(due_times)
    )


def _times_to_fire(trigger: Trigger, found: list[float], now: float) -> list[float]:
    match trigger.misfire:
        case Misfire.ONCE:
            return found[-1:]
        case Misfire.SKIP:
            late = now - trigger.grace_seconds - trigger.jitter_seconds
            return [at for at in found if at >= late]
        case Misfire.CATCH_UP:
            return found[-trigger.catch_up_max :]


def fire(
    trigger: Trigger,
    due: DueFireTimes,
    submissions: Sequence[Submission],
    *,
    now: float,
    chance: float,
) -> TriggerChange:
    """Insert the tasks and move the trigger to its next time or end. ``chance`` in [0, 1)."""
    made: dict[str, Any] = {
        "fired": trigger.fired + len(submissions),
        "missed": trigger.missed + due.missed,
    }
    if submissions:
        made |= {"last_fire_time": due.times[-1], "last_task": submissions[-1].task.id}
    why = "" if submissions else "its time was missed by more than its grace"
    return replace(
        _onward(trigger, due.answered, why, now=now, chance=chance, **made),
        submissions=tuple(submissions),
        unless_unfinished=_task_in_the_way(trigger) if submissions else None,
    )


def skip_overlap(
    trigger: Trigger, due: DueFireTimes, *, now: float, chance: float
) -> TriggerChange:
    """Skip all due fire times, as the trigger's last task still waits or runs."""
    missed = trigger.missed + due.count
    why = "at its time its last task still waited or ran"
    return _onward(trigger, due.newest, why, now=now, chance=chance, missed=missed)


def queue_overlap(trigger: Trigger, *, now: float) -> TriggerChange:
    """Keep the fire time until the last task has ended; then the misfire policy decides."""
    waited = now - _fire_time(trigger)
    seconds = patience(waited * QUEUE_SHARE)
    return put_off(trigger, seconds, "its last task still waits or runs", now=now)


def put_off(
    trigger: Trigger, seconds: float, reason: str, *, now: float, unknown_since: float | None = None
) -> TriggerChange:
    """Look at the trigger again later. It is nobody's fault, so nothing is counted."""
    changes = {
        "trigger_at": now + seconds,
        "reason": reason,
        "unknown_since": unknown_since,
        "retry_count": 0,
    }
    return _by_holder(trigger, C.PUT_OFF, now=now, **changes)


def is_ahead(trigger: Trigger, *, now: float) -> bool:
    """Return whether the trigger waits for a time that a clock ahead of ours must have chosen.

    Its fire time skips an earlier one, or it was put off for longer than any rule does."""
    if trigger.fire_time is None or trigger.trigger_at is None:
        return False
    first = times.next_after(trigger.schedule, now)
    if first is not None and trigger.fire_time > first + AHEAD_SECONDS:
        return True
    latest = max(trigger.fire_time + trigger.jitter_seconds, now + PUT_OFF_MOST_SECONDS)
    return trigger.trigger_at > latest + AHEAD_SECONDS


def bring_back(trigger: Trigger, *, now: float, chance: float) -> TriggerChange:
    """Let the trigger wait for its next time from now on. It makes no second task for a time that
    it has fired for: the keys of those tasks are known."""
    fire_time = _fire_time(trigger)
    first = times.next_after(trigger.schedule, now)
    changes: dict[str, Any] = {"trigger_at": now, "reason": None}
    if first is not None and first < fire_time:
        trigger_at = trigger_time(trigger.schedule, first, trigger.jitter_seconds, chance)
        changes = {"fire_time": first, "trigger_at": trigger_at, "reason": None}
    return _by_holder(trigger, C.MOVE_ON, now=now, **changes)


def give_back(trigger: Trigger, *, now: float) -> TriggerChange:
    """Return the trigger as it was before it was claimed."""
    return _by_holder(trigger, C.PUT_OFF, now=now)


def retry_or_suspend(trigger: Trigger, error: str, *, now: float) -> TriggerChange:
    count = trigger.retry_count + 1
    if count >= RETRY_LIMIT:
        return suspend(trigger, f"firing failed {count} times in a row: {error}", now=now)
    delay = doubled_seconds(RETRY_SECONDS, trigger.retry_count)
    changes = {"trigger_at": now + delay, "reason": error, "retry_count": count}
    return _by_holder(trigger, C.PUT_OFF, now=now, **changes)


def suspend_after_lapses(trigger: Trigger, *, now: float) -> TriggerChange | None:
    """Suspend a trigger whose leases have lapsed too often, until a person acts."""
    if trigger.retry_count < RETRY_LIMIT:
        return None
    why = f": {trigger.reason}" if trigger.reason else ""
    count = trigger.retry_count
    return suspend(trigger, f"{count} times in a row its firing did not end{why}", now=now)


def put_off_unknown(
    trigger: Trigger, *, served: bool, limit_seconds: float, now: float
) -> TriggerChange:
    """Put off a trigger whose type is not declared here; ``served``: a live worker knows it.

    A declared trigger has left the code together with its type. If it comes back, ``unknown_since``
    shows the time that it owes (see `definition.redefine`).
    """
    if served:
        return put_off(trigger, OTHERS_SECONDS, "left to a worker that knows its type", now=now)
    since = now if trigger.unknown_since is None else trigger.unknown_since
    waited, why = now - since, f"no worker knows the task type {trigger.target!r}"
    if waited >= limit_seconds and trigger.declared:
        return drop(trigger, now=now, request=_request(trigger), unknown_since=since)
    if waited >= limit_seconds:
        return suspend(trigger, f"{why}, for {format_duration(waited)} now", now=now)
    return put_off(trigger, patience(waited), why, now=now, unknown_since=since)


def suspend(trigger: Trigger, reason: str, *, now: float) -> TriggerChange:
    return _by_holder(trigger, C.SUSPEND, now=now, trigger_at=None, reason=reason)


def drop(
    trigger: Trigger, *, now: float, request: str, unknown_since: float | None = None
) -> TriggerChange:
    """End a trigger that the code no longer declares; a cancelled one was kept only until then."""
    end = {"ended_at": now, "reason": NOT_DECLARED, "unknown_since": unknown_since}
    if trigger.status in UNFINISHED:
        after = _next_version(trigger, C.CANCEL, now=now, request=request, **_ENDED | end)
    else:
        after = replace(
            trigger, version=trigger.version + 1, updated_at=now, request=request, **end
        )
    return TriggerChange(before=trigger, after=after)


# The commands of a person.


def fire_now(
    trigger: Trigger, ask: OperatorRequest, submission: Submission, *, ended_task: str | None = None
) -> TriggerChange:
    """Make one more task, whatever the policies say; fire times stay. A trigger that fires once
    ends then.

    ``ended_task``: a task that is known to have ended. Where tasks must not overlap, the next fire
    time waits for the older task that still runs, not for this one."""
    MACHINE.step(trigger.status, C.FIRE)
    changes: dict[str, Any] = {"fired": trigger.fired + 1, "last_fire_time": ask.now}
    if trigger.overlap is Overlap.ALLOW or trigger.last_task in (None, ended_task):
        changes["last_task"] = submission.task.id
    command = C.FIRE
    if isinstance(trigger.schedule, Once):
        command = C.FINISH
        changes |= _ENDED | {"ended_at": ask.now, "reason": None}
    change = _by_person(trigger, command, ask, audited=C.FIRE, **changes)
    return replace(change, submissions=(submission,))


def pause(trigger: Trigger, ask: OperatorRequest) -> TriggerChange:
    return _by_person(trigger, C.PAUSE, ask, trigger_at=None, reason=ask.by.reason or None)


def resume(trigger: Trigger, ask: OperatorRequest) -> TriggerChange:
    """Resume the trigger; the misfire policy decides about the fire times that passed."""
    changes: dict[str, Any] = {"retry_count": 0, "unknown_since": None, "reason": None}
    return _by_person(trigger, C.RESUME, ask, trigger_at=trigger.fire_time, **changes)


def cancel(trigger: Trigger, ask: OperatorRequest) -> TriggerChange:
    """Cancel the trigger; a declared one is kept while the code declares it, or it would return."""
    ended_at = None if trigger.declared else ask.now
    changes = _ENDED | {"ended_at": ended_at, "reason": ask.by.reason or None}
    return _by_person(trigger, C.CANCEL, ask, **changes)


def refusal(trigger: Trigger, command: TriggerCommand, ask: OperatorRequest, code: str) -> Audit:
    status = trigger.status
    return ask.audit(f"trigger:{trigger.id}", command, status, status, refused=code)


# Keys, and the times at which a scheduler looks.


def key(trigger: Trigger, fire_time: float) -> str:
    """Return the key of the one task for this fire time."""
    return f"{trigger.id}@{_iso_time(fire_time)}"


def key_now(trigger: Trigger, ask: OperatorRequest) -> str:
    """Return the key of a task that a person asked for; a repeated request has the same key."""
    at = datetime.fromtimestamp(ask.now, UTC).isoformat(timespec="milliseconds")
    return f"{trigger.id}@{at.removesuffix('+00:00')}Z+{ask.request[-8:]}"


def trigger_time(
    schedule: Schedule, fire_time: float, jitter_seconds: float, chance: float
) -> float:
    """Return the fire time plus jitter, at most half-way to the next one, so that a scheduler that
    is a little late does not find two due."""
    if jitter_seconds <= 0:
        return fire_time
    following = times.next_after(schedule, fire_time)
    room = jitter_seconds if following is None else (following - fire_time) / 2
    return fire_time + chance * min(jitter_seconds, room)


def patience(waited_seconds: float) -> float:
    """Return as long a wait as before, within bounds."""
    least, most = PATIENCE_SECONDS
    return min(most, max(least, waited_seconds))


_ENDED: dict[str, Any] = {"fire_time": None, "trigger_at": None, "unknown_since": None}


def _iso_time(at: float) -> str:
    at = round(at, 3)
    spec = "seconds" if at.is_integer() else "milliseconds"
    return f"{datetime.fromtimestamp(at, UTC).isoformat(timespec=spec).removesuffix('+00:00')}Z"


def _fire_time(trigger: Trigger) -> float:
    if trigger.fire_time is None:
        raise HoldfastError(f"trigger {trigger.id} waits for no time")
    return trigger.fire_time


def _task_in_the_way(trigger: Trigger) -> str | None:
    return None if trigger.overlap is Overlap.ALLOW else trigger.last_task


def _onward(
    trigger: Trigger, answered: float, why: str, *, now: float, chance: float, **changes: Any
) -> TriggerChange:
    """Return the trigger at its next fire time, or ended with the reason ``why``."""
    changes |= {"retry_count": 0, "unknown_since": None}
    later = times.next_after(trigger.schedule, answered)
    if later is None:
        end = _ENDED | {"ended_at": now, "reason": why or None}
        return _by_holder(trigger, C.FINISH, now=now, **end | changes)
    trigger_at = later  # at once, if more is due
    if later > now:
        trigger_at = trigger_time(trigger.schedule, later, trigger.jitter_seconds, chance)
    move = {"fire_time": later, "trigger_at": trigger_at, "reason": None}
    return _by_holder(trigger, C.MOVE_ON, now=now, **move | changes)


def _by_holder(
    trigger: Trigger, command: TriggerCommand, *, now: float, **changes: Any
) -> TriggerChange:
    after = _next_version(trigger, command, now=now, request=_request(trigger), **changes)
    return TriggerChange(before=trigger, after=after)


def _request(trigger: Trigger) -> str:
    """Return the id of a holder's write; a holder writes once per version."""
    return f"{trigger.owner}:{trigger.version}"


def _by_person(
    trigger: Trigger,
    command: TriggerCommand,
    ask: OperatorRequest,
    *,
    audited: TriggerCommand | None = None,
    **changes: Any,
) -> TriggerChange:
    changes["asked"] = ask.request
    after = _next_version(trigger, command, now=ask.now, request=ask.request, **changes)
    subject = f"trigger:{trigger.id}"
    audit = ask.audit(subject, audited or command, trigger.status, after.status)
    return TriggerChange(before=trigger, after=after, audit=audit)


def _next_version(
    trigger: Trigger, command: TriggerCommand, *, now: float, request: str, **changes: Any
) -> Trigger:
    return replace(
        trigger,
        status=MACHINE.step(trigger.status, command),
        version=trigger.version + 1,
        updated_at=now,
        request=request,
        owner=None,
        lease_until=None,
        **changes,
    )
