"""`holdfast suspended` shows tasks that wait for a person, and resumes or discards them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import typer

from holdfast.cli import options as opt
from holdfast.cli.batch import (
    BatchReport,
    act,
    act_onward,
    code_unknown,
    hint_of_code,
    judge_checkpoints,
    print_report,
    warn_of,
)
from holdfast.cli.commands.tasks import JSON_REPORT, error_message, full_page
from holdfast.cli.json_input import parse_json, parse_json_object
from holdfast.cli.output.error_groups import SuspendedGroup, group_by_cause
from holdfast.cli.output.printer import Row, hint, print_json, print_table, status_text
from holdfast.cli.output.task_json import TASK_KEYS, detail_view, task_view
from holdfast.cli.output.task_view import print_task
from holdfast.cli.session import Session, person, run
from holdfast.domain.errors import NotSuspended, TaskNotFound
from holdfast.domain.phrases import count, span
from holdfast.domain.task.state import SUSPENDED
from holdfast.domain.task.task import Task
from holdfast.ports import Detail, Filter, Page

PAGE = 500
AT_MOST = 100_000  # in one go; ask again for the rest

suspended = typer.Typer(help="List, show, resume, amend or discard suspended tasks.")

IdsOrNone = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of tasks.")]
AllMatching = Annotated[
    bool,
    typer.Option("--all-matching", help="Act on all tasks that the filters match, instead of ids."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ByGroup = Annotated[bool, typer.Option("--group", help="Group by cause, and count.")]


@suspended.command(
    "list",
    epilog=f"JSON: tasks (each: {TASK_KEYS}), cursor. With --group: groups (each: fingerprint, "
    "count, error, stage, types, example, oldest, newest), complete.",
)
def list_suspended(
    context: typer.Context,
    *,
    type: opt.Type = None,
    tenant: opt.Tenant = None,
    queue: opt.Queue = None,
    error: opt.Error = None,
    older_than: opt.OlderThan = None,
    group: ByGroup = False,
    limit: opt.Limit = 50,
    cursor: opt.Cursor = None,
    json: opt.Json = False,
) -> None:
    """List suspended tasks, the newest first. With --group, count them by cause."""
    filters = _filters(type, tenant, queue, error, older_than)
    if group:
        groups, complete = run(
            context, lambda s: group_by_cause(s.store, _where(s, filters), AT_MOST)
        )
        _print_groups(groups, complete, filters, json)
        return

    async def load(session: Session) -> tuple[Page, float]:
        page = await full_page(session, _where(session, filters), limit, cursor)
        return page, session.now

    page, now = run(context, load)
    if json:
        print_json({"tasks": [task_view(task) for task in page.tasks], "cursor": page.cursor})
        return
    print_table([_row(task, now) for task in page.tasks], keep=4)
    if not page.tasks:
        hint(_none(filters))
    if page.cursor:
        hint(f"more with --cursor {page.cursor}")


def _row(task: Task, now: float) -> Row:
    failure = task.failure
    return {
        "ID": task.id,
        "STATUS": status_text(task.status),
        "SINCE": span(now - task.status_since),
        "SAYS": error_message(task),
        "TYPE": task.type,
        "TENANT": task.tenant or "-",
        "ERROR": failure.fingerprint if failure else "-",
        "STAGE": failure.stage if failure else "-",
    }


def _none(filters: dict[str, Any]) -> str:
    narrowed = any(value is not None for value in filters.values())
    return "no suspended task matches" if narrowed else "nothing waits for a person"


def _print_groups(
    groups: Sequence[SuspendedGroup], complete: bool, filters: dict[str, Any], json: bool
) -> None:
    if json:
        print_json({"groups": [group.shape() for group in groups], "complete": complete})
        return
    print_table([group.row() for group in groups], keep=3)
    if not groups:
        hint(_none(filters))
    if not complete:
        hint(f"only the newest {AT_MOST} were counted")


@suspended.command(epilog="JSON: as `holdfast tasks show`.")
def show(context: typer.Context, id: opt.Id, json: opt.Json = False) -> None:
    """Show everything about one suspended task."""

    async def load(session: Session) -> tuple[Detail, Session]:
        detail = await session.store.views.detail(id)
        if detail is None:
            raise TaskNotFound(id)
        if not detail.task.suspended:
            raise NotSuspended(id, detail.task.status)
        return detail, session

    detail, session = run(context, load)
    if json:
        print_json(detail_view(detail, session.now))
    else:
        print_task(detail, session.now)


@suspended.command(epilog=JSON_REPORT)
def resume(
    context: typer.Context,
    *,
    ids: IdsOrNone = None,
    all_matching: AllMatching = False,
    type: opt.Type = None,
    tenant: opt.Tenant = None,
    queue: opt.Queue = None,
    error: opt.Error = None,
    older_than: opt.OlderThan = None,
    reason: opt.Reason = "",
    force: opt.Force = False,
    yes: Yes = False,
    json: opt.Json = False,
) -> int:
    """Resume suspended tasks, forward or in their rollback. Failures count from zero."""
    filters = _chosen(ids, all_matching, _filters(type, tenant, queue, error, older_than))

    async def one(session: Session, task_id: str) -> Task:
        return await session.control.resume_suspended(task_id, reason=reason, force=force)

    return _each(context, "resume", ids, filters, one, yes=yes, json=json, onward=True)


@suspended.command(epilog=JSON_REPORT)
def amend(
    context: typer.Context,
    *,
    id: opt.Id,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The new payload, instead of the submitted one."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The new data, instead of what the stages stored."),
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
        given["payload"] = parse_json("--payload", payload)
    if data is not None:
        given["data"] = parse_json_object("--data", data, '{"cursor": 7}')

    async def whole(session: Session) -> BatchReport:
        checkpoints = session.app.checkpoints.acting_as(*person())
        how = given | {"reason": reason, "force": force, "from_view": True}
        return await act([id], lambda i: checkpoints.amend(i, **how))

    return print_report(run(context, whole), json=json)


@suspended.command(epilog=JSON_REPORT)
def discard(
    context: typer.Context,
    *,
    ids: IdsOrNone = None,
    all_matching: AllMatching = False,
    type: opt.Type = None,
    tenant: opt.Tenant = None,
    queue: opt.Queue = None,
    error: opt.Error = None,
    older_than: opt.OlderThan = None,
    reason: opt.Reason = "",
    yes: Yes = False,
    json: opt.Json = False,
) -> int:
    """Discard suspended tasks: they end as cancelled, with the reason."""
    filters = _chosen(ids, all_matching, _filters(type, tenant, queue, error, older_than))

    async def one(session: Session, task_id: str) -> Task:
        return await session.control.discard(task_id, reason=reason)

    return _each(context, "discard", ids, filters, one, yes=yes, json=json)


def _each(
    context: typer.Context,
    verb: str,
    ids: Sequence[str] | None,
    filters: dict[str, Any],
    one: Callable[[Session, str], Awaitable[Task]],
    *,
    yes: bool,
    json: bool,
    onward: bool = False,
) -> int:
    async def whole(session: Session) -> BatchReport:
        if ids and onward:
            return await act_onward(session, ids, lambda task_id: one(session, task_id))
        chosen = ids or await _matching(session, _where(session, filters))
        unknown: tuple[str, ...] = ()
        if not ids and chosen:
            if onward:
                ahead = await judge_checkpoints(session, chosen)
                warn_of(ahead.outlooks)
                unknown = code_unknown(session, ahead.tasks)
                hint_of_code(() if json else unknown)
            _announce(verb, len(chosen), yes=yes)
        report = await act(chosen, lambda task_id: one(session, task_id))
        report.code_unknown = unknown if json else ()  # a person was told before
        return report

    return print_report(run(context, whole), json=json, brief=not ids)


def _announce(verb: str, many: int, *, yes: bool) -> None:
    said = f"{verb} {count(many, 'task')}"
    if many == AT_MOST:
        said += " (the newest; ask again for the rest)"
    if yes:
        hint(said)
    else:
        typer.confirm(f"{said}?", abort=True, err=True)


async def _matching(session: Session, where: Filter) -> list[str]:
    """Return all matching ids before the first action, because acting would shift the next page."""
    found: list[str] = []
    cursor = None
    while len(found) < AT_MOST:
        page = await session.store.views.find(where, limit=PAGE, cursor=cursor)
        found += [task.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            break
    return found[:AT_MOST]


def _filters(
    type: str | None,
    tenant: str | None,
    queue: str | None,
    error: str | None,
    older_than: str | None,
) -> dict[str, Any]:
    return {
        "type": type,
        "tenant": tenant,
        "queue": queue,
        "error": error,
        "older_than": older_than,
    }


def _chosen(ids: list[str] | None, all_matching: bool, filters: dict[str, Any]) -> dict[str, Any]:
    if bool(ids) is all_matching:
        raise opt.WrongUsage("give ids, or --all-matching with filters")
    if ids and any(value is not None for value in filters.values()):
        raise opt.WrongUsage("filters go with --all-matching, not with ids")
    return filters


def _where(session: Session, filters: dict[str, Any]) -> Filter:
    return opt.filtered(session.now, statuses=tuple(sorted(SUSPENDED)), **filters)
