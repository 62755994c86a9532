"""A task is formatted here for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.text import Text

from holdfast.cli.output import printer as out
from holdfast.cli.output import redaction
from holdfast.domain.errors import SerialisationError
from holdfast.domain.phrases import ago, span
from holdfast.domain.plain import plain, plain_line
from holdfast.domain.task import checkpoint
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Failure, Task
from holdfast.engine.handle import info
from holdfast.engine.operations.expired_checkpoints import outlook
from holdfast.insight.views.tasks import at, callback_view
from holdfast.ports import Detail

BODY_SHOWN = 2000  # characters; --json has all of it
COMMON = {"event", "taskId", "version", "at", "traceback"}

DONE, FAILED, NOW, UNDONE, TO_COME = "✓", "✗", "▶", "↶", "·"


def print_task(detail: Detail, now: float) -> None:
    task = detail.task
    out.print_fields(_summary(detail, now))
    out.section("stages")
    for line in _stages(detail):
        out.say(line)
    if task.failure is not None:
        _print_failure(task.failure, now)
    if detail.checkpoint is not None:
        _print_checkpoint(detail.checkpoint, task, now)
    _print_body("payload", detail.payload)
    _print_body("result", detail.result)
    out.print_events(detail.events, _describe)


def _summary(detail: Detail, now: float) -> dict[str, str | Text | None]:
    task, shown = detail.task, info(detail)
    status = out.status_text(task.status) + Text(f" for {span(now - task.status_since)}")
    failures = f"{task.failures} in a row (at most {task.retry_max})"
    message = f": {redaction.text(shown.message)}" if shown.message else ""
    return {
        "task": task.id,
        "type": task.type,
        "status": status,
        "waits for": _requests(task),
        "reason": redaction.text_or_none(task.reason),
        "tenant": task.tenant,
        "plan": task.plan,
        "key": task.key,
        "callback": callback_view(task.callback),
        "queue": f"{task.queue} ({task.place})",
        "progress": f"{shown.progress:.0%}{message}",
        "run": f"{task.run}" + ("" if task.settled else f", attempt {task.attempt}"),
        "failures": failures if task.failures else None,
        "outages": _outages(task, now),
        "crashes": f"{task.crashes} in a row" if task.crashes else None,
        "lease": _lease(task, now),
        "ran by": task.ran_by if task.lease is None else None,
        "due": at(task.due) if task.place is Place.LATER else None,
        "created": out.since(task.created_at, now),
        "updated": out.since(task.updated_at, now),
        "commands": ", ".join(task.legal) or "none",
    }


def _outages(task: Task, now: float) -> str | None:
    if task.outage_since is None:
        return None
    return f"{task.outages} in a row, the first {ago(now - task.outage_since)}"


def _requests(task: Task) -> str | None:
    if task.place is Place.HELD and task.plan is not None:
        return f"its plan: see `holdfast why {task.id}`"
    if task.cancel_requested:
        return "a cancel, at the end of the stage"
    return "a pause, at the end of the stage" if task.pause_requested else None


def _lease(task: Task, now: float) -> str | None:
    if task.lease is None:
        return None
    if not task.lease.until:
        return f"{task.lease.owner}, fence {task.lease.fence}, its end is not known"
    left = task.lease.until - now
    holds = f"for {span(left)} more" if left > 0 else f"lapsed {ago(-left)}"
    return f"{task.lease.owner}, fence {task.lease.fence}, {holds}"


def _stages(detail: Detail) -> Iterator[str]:
    task = detail.task
    took = {stage.name: stage.duration_seconds for stage in detail.stages}
    undone = _undone_stages(detail)
    wide = max(map(len, task.stages))
    for index, name in enumerate(task.stages):
        mark = UNDONE if name in undone else _mark(task, index)
        outcome = undone.get(name) or (span(took[name]) if mark == DONE and name in took else "")
        if mark == FAILED and task.failure is not None:
            outcome = redaction.text(task.failure.summary)
        yield f"  {mark} {name:<{wide}}  {plain_line(outcome)}".rstrip()


def _mark(task: Task, index: int) -> str:
    rolling = task.status in (Status.ROLLING_BACK, Status.ROLLBACK_FAILED)
    present = task.next_undo if rolling else task.last_completed + 1
    if index == present:
        if task.place is Place.LEASED:
            return NOW
        if task.failure is not None:
            return FAILED
    return DONE if index <= task.last_completed else TO_COME


def _undone_stages(detail: Detail) -> dict[str, str]:
    """Return the stages that the last rollback undid, whether it has ended or not."""
    if detail.task.status not in (Status.ROLLING_BACK, Status.ROLLBACK_FAILED, Status.ROLLED_BACK):
        return {}
    return {
        event.stage: "undone" if event.had_undo else "nothing to undo"
        for event in detail.events
        if isinstance(event, ev.StageUndone) and event.run > _last_forward_run(detail)
    }


def _last_forward_run(detail: Detail) -> int:
    """Return the last run that went forward; a rollback that was requested twice has two runs."""
    runs = [e.run for e in detail.events if isinstance(e, ev.StageCompleted | ev.StageFailed)]
    return max(runs, default=0)


def _print_failure(failure: Failure, now: float) -> None:
    out.section("error")
    failure = redaction.current().failure(failure)
    out.say(f"  {failure.summary}")
    out.say(
        f"  {failure.kind}, stage {failure.stage}, attempt {failure.attempt}, "
        f"{ago(now - failure.at)}, fingerprint {failure.fingerprint}"
    )
    for line in failure.traceback.splitlines():
        out.say(f"    {plain(line)}")


def _print_checkpoint(body: bytes, task: Task, now: float) -> None:
    try:
        saved = checkpoint.decode(body)
    except SerialisationError:
        _print_body("checkpoint (unreadable)", body)
        return
    out.section("checkpoint")
    data = msgspec.json.encode(saved.custom_data)
    out.say(
        f"  after stage {', '.join(saved.completed_stage_names[-1:])}, version {saved.version}, "
        f"{at(saved.timestamp.timestamp())}"
    )
    if saved.custom_data:
        out.say(f"  data {short_body(data)}")
    if ahead := outlook(task, saved, now=now):
        out.say(f"  {ahead.why}; when resumed, the task {ahead.message}")


def _print_body(name: str, body: bytes | None) -> None:
    if body is None:
        return
    out.section(name)
    out.say(f"  {short_body(body)}")


def short_body(body: bytes) -> str:
    """Return stored JSON without its secrets, shortened for a terminal."""
    text = plain_line(msgspec.json.encode(redaction.body(body)).decode())
    more = f"… ({len(text)} characters; --json has all)" if len(text) > BODY_SHOWN else ""
    return f"{text[:BODY_SHOWN]}{more}"


def _describe(event: ev.Event) -> str:
    fields = redaction.current().strings(msgspec.to_builtins(event))
    return f"{ev.name_of(event)}  {', '.join(_facts(fields))}"


def _facts(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if name in COMMON or value in (None, ""):
            continue
        if name == "failure":
            yield f"{value['stage']}: {value['error']}: {value['message']}"
        elif name == "by":
            yield out.operator_text(value)
        elif name.endswith("Seconds"):
            yield span(value)
        elif name == "stage":
            yield value
        else:
            yield f"{name} {value}"
