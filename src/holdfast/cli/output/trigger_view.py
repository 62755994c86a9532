"""A trigger is formatted here for people, with times in its own time zone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from holdfast.cli.output import redaction
from holdfast.cli.output.printer import Row, print_fields, say, section, since, status_text
from holdfast.cli.output.task_view import short_body
from holdfast.domain.phrases import ago, span
from holdfast.domain.trigger.schedule import Schedule, format_schedule
from holdfast.domain.trigger.trigger import UNFINISHED, Misfire, Trigger, TriggerStatus
from holdfast.engine.triggers.declared_triggers import zone_of

IN_CODE, BY_A_CALL = "code", "call"


def local(moment: float, schedule: Schedule) -> str:
    """Format a time as ``2026-01-31 03:00:00+08:00``, in the trigger's zone."""
    return format_time(datetime.fromtimestamp(moment, zone_of(schedule)))


def format_time(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="milliseconds" if moment.microsecond else "seconds")


def trigger_row(trigger: Trigger) -> Row:
    waits = trigger.fire_time if trigger.status in UNFINISHED else None
    return {
        "ID": trigger.id,
        "STATUS": status_text(trigger.status),
        "NEXT": "-" if waits is None else local(waits, trigger.schedule),
        "FROM": IN_CODE if trigger.declared else BY_A_CALL,
        "TYPE": trigger.target,
        "SCHEDULE": format_schedule(trigger.schedule),
        "TENANT": trigger.tenant or "-",
        "FIRED": str(trigger.fired),
        "MISSED": str(trigger.missed),
        "REASON": redaction.text(trigger.reason or "-"),
    }


def print_trigger(trigger: Trigger, upcoming: Sequence[datetime], now: float) -> None:
    print_fields(_summary(trigger, now))
    section("next")
    if trigger.status in (TriggerStatus.PAUSED, TriggerStatus.SUSPENDED):
        say(f"  it is {trigger.status}; if resumed now, it would fire at")
    for moment in upcoming:
        say(f"  {format_time(moment)}")
    if not upcoming:
        say("  never again")
    section("payload")
    maker = " (or what its function in code returns)" if trigger.declared else ""
    say(f"  {short_body(bytes(trigger.payload))}{maker}")


def _summary(trigger: Trigger, now: float) -> dict[str, str | Text | None]:
    most = f" (at most {trigger.catch_up_max})" if trigger.misfire is Misfire.CATCH_UP else ""
    jitter = f"at most {span(trigger.jitter_seconds)} late" if trigger.jitter_seconds else None
    return {
        "trigger": trigger.id,
        "status": status_text(trigger.status),
        "reason": redaction.text_or_none(trigger.reason),
        "schedule": format_schedule(trigger.schedule),
        "made by": "a declaration in code" if trigger.declared else "a call",
        "type": trigger.target,
        "tenant": trigger.tenant,
        "queue": trigger.queue,
        "fire time": _fire_time(trigger, now),
        "handled at": _handled_at(trigger),
        "last": _last(trigger),
        "fired": str(trigger.fired),
        "missed": str(trigger.missed) if trigger.missed else None,
        "misfire": f"{trigger.misfire}{most}, when late by more than {span(trigger.grace_seconds)}",
        "overlap": str(trigger.overlap),
        "jitter": jitter,
        "retries": str(trigger.retry_count) if trigger.retry_count else None,
        "scheduler": trigger.owner,
        "created": since(trigger.created_at, now),
        "updated": since(trigger.updated_at, now),
        "commands": ", ".join(trigger.legal) or "none",
    }


def _fire_time(trigger: Trigger, now: float) -> str | None:
    if trigger.fire_time is None:
        return None
    left = trigger.fire_time - now
    when = f"in {span(left)}" if left > 0 else ago(-left)
    return f"{local(trigger.fire_time, trigger.schedule)} ({when})"


def _handled_at(trigger: Trigger) -> str | None:
    """Return when the scheduler will handle the trigger, if jitter or a delay makes that later than
    the fire time.
    """
    if trigger.trigger_at is None or trigger.trigger_at == trigger.fire_time:
        return None
    return local(trigger.trigger_at, trigger.schedule)


def _last(trigger: Trigger) -> str | None:
    if trigger.last_fire_time is None:
        return None
    task = f", task {trigger.last_task}" if trigger.last_task else ""
    return f"{local(trigger.last_fire_time, trigger.schedule)}{task}"
