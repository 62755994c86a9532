"""A plan is formatted here as a page, as JSON, as a frame of a live view, and as a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.cli.output import printer as out
from holdfast.cli.output import redaction
from holdfast.domain.phrases import count, format_names, span
from holdfast.domain.plain import plain_line
from holdfast.domain.plan import events as plan_events
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import SETTLED, MemberState, OnHalt, Plan
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.task import Task
from holdfast.engine.plans.handle import PlanInfo
from holdfast.insight.views import plans as views
from holdfast.insight.views.tasks import event_view, failure_view

FAILED_SHOWN = 10
NAMES_SHOWN = 5
BAR_CHARS = 30
ALWAYS = (MemberState.COMPLETED, MemberState.FAILED)
COMMON = frozenset({"event", "planId", "version", "at"})

_THEN = {
    OnHalt.PAUSE: "it waits for a person",
    OnHalt.ROLLBACK: "the wave is rolled back",
    OnHalt.ROLLBACK_PLAN: "the whole plan is rolled back",
}


class FailedTask(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    tenant: str | None
    state: MemberState
    task: Task | None  # None: its record is gone

    @property
    def message(self) -> str:
        if self.task is None or self.task.failure is None:
            return "no error is stored"
        return redaction.text(self.task.failure.summary)

    def view(self, hide: Redactor) -> views.FailedMember:
        failure = self.task.failure if self.task else None
        return {
            "taskId": self.task_id,
            "tenantId": self.tenant,
            "state": self.state,
            "error": failure_view(failure, hide) if failure else None,
        }


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with its failures and, if requested, its events."""

    plan: Plan
    info: PlanInfo
    failed: tuple[FailedTask, ...]  # the first of them
    failed_total: int
    events: Sequence[PlanEvent] | None

    def view(self, hide: Redactor) -> views.PlanReportView:
        shown: views.PlanReportView = {
            **views.plan_view(self.info, hide),
            **views.terms_view(self.plan),
            "failed": [failed.view(hide) for failed in self.failed],
            "failedTotal": self.failed_total,
        }
        if self.events is None:
            return shown
        events = [event_view(event, hide) for event in self.events]
        return views.PlanReportWithEvents(**shown, events=events)


def print_plan(shown: PlanReport, now: float) -> None:
    out.print_fields(_summary(shown.plan, shown.info, now))
    out.say()
    out.print_table(list(wave_rows(shown.info)), keep=2)
    if shown.failed_total:
        _print_failed(shown)
    out.hint(f"all its tasks: holdfast tasks list --plan {shown.info.id}")
    if shown.events is not None:
        out.print_events(shown.events, _describe)


def _summary(plan: Plan, info: PlanInfo, now: float) -> dict[str, str | Text | None]:
    status = out.status_text(info.status) + Text(f" for {span(now - plan.status_since)}")
    return {
        "plan": info.id,
        "status": status + Text(", is being cancelled" if info.cancel_requested else ""),
        "reason": redaction.text_or_none(info.reason),
        "progress": bar(info),
        "wave": _wave(info),
        "slots": _slots(info),
        "halts": _halts(plan),
        "conflict": f"{plan.conflict}, for a tenant that is busy",
        "soak": span(plan.soak_seconds) if plan.soak_seconds else None,
        "ends": None if info.ends_in_seconds is None else f"in about {span(info.ends_in_seconds)}",
        "driver": info.driver,
        "created": out.since(info.created_at, now),
        "started": None if info.started_at is None else out.since(info.started_at, now),
        "updated": out.since(info.updated_at, now),
        "commands": ", ".join(info.legal) or "none",
    }


def percent(progress: float) -> str:
    """Return the progress in percent, rounded down: 100% means that all is done."""
    return f"{int(progress * 100)}%"


def bar(info: PlanInfo) -> str:
    filled = int(info.progress * BAR_CHARS)
    ended = round(info.progress * info.total)
    drawn = "█" * filled + "░" * (BAR_CHARS - filled)
    return f"{drawn} {percent(info.progress)}, {ended} of {count(info.total, 'task')}"


def _wave(info: PlanInfo) -> str:
    soaks = f", soaks for {span(info.soak_seconds_left)} more" if info.soak_seconds_left else ""
    return f"{info.wave} of {len(info.waves)}{soaks}"


def _slots(info: PlanInfo) -> str:
    taken = info.count(MemberState.ADMITTED, MemberState.UNDOING)
    most = "no limit" if info.max_concurrency is None else f"at most {info.max_concurrency}"
    return f"{taken} taken, {most}"


def _halts(plan: Plan) -> str | None:
    if plan.halt_on is None:
        return None
    return f"when {plan.halt_on} failed; then {_THEN[plan.on_halt]}"


def wave_rows(info: PlanInfo) -> Iterator[out.Row]:
    shown = [state for state in MemberState if state in ALWAYS or info.count(state)]
    for wave in info.waves:
        mark = "▶" if wave.number == info.wave and info.status not in SETTLED else " "
        states = {state.value.upper(): str(wave.counts.get(state, 0)) for state in shown}
        yield {"WAVE": f"{mark} {wave.number}", "SIZE": str(wave.size)} | states


def _print_failed(shown: PlanReport) -> None:
    out.section(f"failed ({shown.failed_total})")
    for failed in shown.failed[:FAILED_SHOWN]:
        undone = "" if failed.state is MemberState.FAILED else f", {failed.state}"
        out.say(f"  {failed.task_id}  {failed.tenant or 'no tenant'}{undone}")
        out.item("  ", failed.message)
    if (more := shown.failed_total - FAILED_SHOWN) > 0:
        out.say(f"  and {more} more; --json has them")


def _describe(event: PlanEvent) -> str:
    return f"{plan_events.name_of(event)}  {', '.join(_facts(msgspec.to_builtins(event)))}"


def _facts(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if name in COMMON or value in (None, "", ()):
            continue
        if name == "by":
            yield out.operator_text(value)
        elif name == "moved":
            states = Counter(state for _, state in value)
            yield ", ".join(f"{number} {state}" for state, number in states.items())
        elif name == "tenants":
            yield format_names(value, NAMES_SHOWN)
        else:
            yield value if name == "why" else f"{name} {value}"


def frame(info: PlanInfo, width: int) -> RenderableType:
    """Return what `watch` shows on a terminal."""
    head = Text(f"{info.id}  ") + out.status_text(info.status) + Text(f"  wave {_wave(info)}")
    ends = "" if info.ends_in_seconds is None else f", ends in about {span(info.ends_in_seconds)}"
    table, _ = out.table_of(list(wave_rows(info)), keep=2, width=width)
    reason = [Text(plain_line(redaction.text(info.reason)))] if info.reason else []
    return Group(head, Text(f"{bar(info)}{ends}"), *reason, table)


def line(info: PlanInfo) -> str:
    """Return the line that `watch` prints for each change when the output is not a terminal."""
    counts = {state: info.count(state) for state in MemberState}
    states = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    cancelling = ", is being cancelled" if info.cancel_requested else ""
    soaks = ", soaks" if info.soak_seconds_left else ""
    why = f": {redaction.text(info.reason)}" if info.reason else ""
    wave = f"wave {info.wave} of {len(info.waves)}{soaks}"
    return f"{info.status}{cancelling}  {percent(info.progress)}  {wave}  {states}{why}"
