"""`holdfast suspended` shows tasks that wait for a person, and resumes, amends or discards them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import typer

from holdfast.cli import batch
from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.commands import tasks as task_commands
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import Row, hint, print_list, status_text
from holdfast.cli.pages import matching_tasks
from holdfast.cli.session import Session, in_session, person, run
from holdfast.domain.errors import NotSuspended
from holdfast.domain.phrases import count, span
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.state import SUSPENDED
from holdfast.domain.task.task import Task
from holdfast.engine.operations.control import Control
from holdfast.insight.views.tasks import SuspendedGroup, SuspendedGroups, TaskDetail
from holdfast.insight.views.view import keys
from holdfast.ports import Filter, Store

NO_ERROR = "-"
AT_MOST = 100_000  # of one command; repeat it for the rest

suspended = CommandGroup(help="List, show, resume, amend or discard suspended tasks.")

IdsOrNone = Annotated[list[str] | None, opt.argument("ID", "Ids of tasks.")]
AllMatching = Annotated[
    bool, opt.flag("--all-matching", "Act on all tasks that the filters match, instead of ids.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ByGroup = Annotated[bool, opt.flag("--group", "Group by error, and count.")]

with_filters = opt.with_filters("type", "tenant", "queue", "error", "older_than")


@suspended.command(
    "list",
    epilog=f"JSON: {task_commands.PAGE_KEYS} (null: the last page). "
    f"With --group: {keys(SuspendedGroups, groups=SuspendedGroup)}.",
)
@with_filters
@in_session
async def list_suspended(
    session: Session,
    *,
    filters: opt.Filters,
    group: ByGroup = False,
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List suspended tasks, the newest first. With --group, count them by error."""
    empty = "no suspended task matches" if any(filters.values()) else "nothing waits for a person"
    where = _where(session, filters)
    if group:
        await _list_groups(session, where, empty, json=json)
        return
    tasks, more = await task_commands.find_tasks(session, where, limit, cursor)
    print_list(
        task_commands.task_page(tasks, more),
        [_row(task, session.now) for task in tasks],
        json=json,
        empty=empty,
        keep=4,
    )


def _row(task: Task, now: float) -> Row:
    failure = task.failure
    return {
        "ID": task.id,
        "STATUS": status_text(task.status),
        "SINCE": span(now - task.status_since),
        "ERROR": task_commands.error_message(task),
        "TYPE": task.type,
        "TENANT": task.tenant or "-",
        "FINGERPRINT": failure.fingerprint if failure else "-",
        "STAGE": failure.stage if failure else "-",
    }


async def _list_groups(session: Session, where: Filter, empty: str, *, json: bool) -> None:
    groups, complete = await _group_by_error(session.store, where)
    print_list(
        SuspendedGroups(groups=[group.view() for group in groups], complete=complete),
        [group.row() for group in groups],
        json=json,
        empty=empty,
        keep=3,
    )
    if not complete and not json:
        hint(f"only the newest {AT_MOST} were counted")


@dataclass(slots=True)
class ErrorTally:
    """Suspended tasks whose errors have the same fingerprint, as they are counted."""

    fingerprint: str
    newest: Task
    oldest_at: float = 0.0
    count: int = 0
    types: set[str] = field(default_factory=set)

    def add(self, task: Task) -> None:
        self.count += 1
        self.types.add(task.type)
        self.oldest_at = min(self.oldest_at or task.status_since, task.status_since)

    def row(self) -> Row:
        failure = self.newest.failure
        return {
            "FINGERPRINT": self.fingerprint,
            "COUNT": str(self.count),
            "TYPE": ", ".join(sorted(self.types)),
            "STAGE": failure.stage if failure else NO_ERROR,
            "ERROR": failure.error.rpartition(".")[2] if failure else NO_ERROR,
            "MESSAGE": redaction.text(failure.message) if failure else NO_ERROR,
        }

    def view(self) -> SuspendedGroup:
        failure = self.newest.failure
        return {
            "fingerprint": self.fingerprint,
            "count": self.count,
            "error": failure.error if failure else None,
            "stage": failure.stage if failure else None,
            "types": sorted(self.types),
            "example": self.newest.id,
            "oldest": iso(self.oldest_at),
            "newest": iso(self.newest.status_since),
        }


async def _group_by_error(store: Store, where: Filter) -> tuple[Sequence[ErrorTally], bool]:
    """Return the groups, the most frequent first, and whether all tasks were counted."""
    groups: dict[str, ErrorTally] = {}
    counted, complete = 0, True
    async for task in matching_tasks(store, where):
        if counted == AT_MOST:
            complete = False
            break
        name = task.failure.fingerprint if task.failure else NO_ERROR
        groups.setdefault(name, ErrorTally(name, task)).add(task)
        counted += 1
    return sorted(groups.values(), key=lambda group: -group.count), complete


@suspended.command("show", epilog=f"JSON: {keys(TaskDetail)}.")
@in_session
async def show(session: Session, id: opt.Id, json: opt.Json = False) -> None:
    """Show everything about one suspended task."""
    detail = await session.load_detail(id)
    if not detail.task.suspended:
        raise NotSuspended(id, detail.task.status)
    task_commands.print_detail(detail, session.now, json=json)


@suspended.command("resume", epilog=task_commands.JSON_REPORT)
@with_filters
def resume(
    context: typer.Context,
    *,
    ids: IdsOrNone = None,
    all_matching: AllMatching = False,
    filters: opt.Filters,
    reason: opt.Reason = "",
    force: opt.Force = False,
    yes: Yes = False,
    json: opt.Json = False,
) -> int:
    """Resume suspended tasks, forward or in their rollback. Failures count from zero."""
    command = partial(Control.resume_suspended, reason=reason, force=force)
    chosen = _check_choice(ids, all_matching, filters)
    return _send_command(context, "resume", command, ids, chosen, yes=yes, json=json, onward=True)


@suspended.command("amend", epilog=task_commands.JSON_REPORT)
@in_session
async def amend(
    session: Session,
    *,
    id: opt.Id,
    payload: Annotated[
        str | None, opt.takes("JSON", "The new payload, instead of the submitted one.")
    ] = None,
    data: Annotated[
        str | None, opt.takes("JSON", "The new data, instead of what the stages stored.")
    ] = None,
    reason: opt.Reason = "",
    force: opt.Force = False,
    json: opt.Json = False,
) -> int:
    """Correct the payload or data of a suspended task. The task is then resumed.

    A worker that knows the type suspends the task again if the payload does not fit. A submission
    with the first payload still finds the task.
    """
    given: dict[str, Any] = {}
    if payload is not None:
        given["payload"] = opt.parse_json("--payload", payload)
    if data is not None:
        given["data"] = opt.parse_json_object("--data", data, '{"cursor": 7}')
    checkpoints = session.app.checkpoints.acting_as(*person())
    ask = partial(checkpoints.amend, reason=reason, force=force, from_view=True, **given)
    return batch.print_report(await batch.act([id], ask), json=json)


@suspended.command("discard", epilog=task_commands.JSON_REPORT)
@with_filters
def discard(
    context: typer.Context,
    *,
    ids: IdsOrNone = None,
    all_matching: AllMatching = False,
    filters: opt.Filters,
    reason: opt.Reason = "",
    yes: Yes = False,
    json: opt.Json = False,
) -> int:
    """Discard suspended tasks: they end as cancelled, with the reason."""
    command = partial(Control.discard, reason=reason)
    chosen = _check_choice(ids, all_matching, filters)
    return _send_command(context, "discard", command, ids, chosen, yes=yes, json=json)


def _check_choice(ids: list[str] | None, all_matching: bool, filters: opt.Filters) -> opt.Filters:
    if bool(ids) is all_matching:
        raise opt.WrongUsage("give ids, or --all-matching with filters")
    if ids and any(value is not None for value in filters.values()):
        raise opt.WrongUsage("filters go with --all-matching, not with ids")
    return filters


def _send_command(
    context: typer.Context,
    verb: str,
    command: Callable[[Control, str], Awaitable[Task]],
    ids: Sequence[str] | None,
    filters: opt.Filters,
    *,
    yes: bool,
    json: bool,
    onward: bool = False,
) -> int:
    async def send(session: Session) -> batch.BatchReport:
        ask = partial(command, session.control)
        if ids:
            return await (batch.act_onward(session, ids, ask) if onward else batch.act(ids, ask))
        chosen = await _matching_ids(session, filters)
        unknown: tuple[str, ...] = ()
        if chosen and onward:
            ahead = await batch.judge_checkpoints(session, chosen)
            batch.warn_of(ahead.outlooks)
            unknown = batch.code_unknown(session, ahead.tasks)
            batch.hint_of_code(() if json else unknown)
        if chosen:
            _confirm(verb, len(chosen), yes=yes)
        report = await batch.act(chosen, ask)
        report.code_unknown = unknown if json else ()  # people have read the hint
        return report

    return batch.print_report(run(context, send), json=json, brief=not ids)


def _confirm(verb: str, many: int, *, yes: bool) -> None:
    action = f"{verb} {count(many, 'task')}"
    if many == AT_MOST:
        action += " (the newest; repeat the command for the rest)"
    if yes:
        hint(action)
    else:
        typer.confirm(f"{action}?", abort=True, err=True)


async def _matching_ids(session: Session, filters: opt.Filters) -> list[str]:
    """Return all matching ids before the first action, because acting would shift the next page."""
    ids: list[str] = []
    async for task in matching_tasks(session.store, _where(session, filters)):
        ids.append(task.id)
        if len(ids) == AT_MOST:
            break
    return ids


def _where(session: Session, filters: opt.Filters) -> Filter:
    return opt.task_filter(session.now, statuses=sorted(SUSPENDED), **filters)
