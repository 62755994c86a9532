"""The transitions of many tasks, page by page: newest tasks first, each task's oldest step first.

Stores find tasks in the order of their ids, so a cursor is an id, and the version of the step
behind which the page broke off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from holdfast.domain.errors import InvalidInput, TaskNotFound
from holdfast.domain.task.history import HistoryStep, steps
from holdfast.ports import Filter, Store

TASKS = 20  # found at once
TASKS_MAX = 400  # tasks looked at for one page, however few of their steps match

_MARK = "@"
_ALL = 2**53  # behind every version


class TransitionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of transitions; a call is bounded, so a short page may still have a next one."""

    transitions: tuple[HistoryStep, ...]
    cursor: str | None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window of time for transitions; None means no bound."""

    since: float | None = None
    until: float | None = None

    def holds(self, at: float) -> bool:
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


async def page(
    store: Store, where: Filter, window: Window, *, limit: int, cursor: str | None = None
) -> TransitionPage:
    """Return the transitions of the tasks that match, whoever made them."""
    shown: list[HistoryStep] = []
    last, tasks = "", 0
    async for task_id, after in _tasks(store, _changed_since(where, window), cursor):
        for step in await _steps(store, task_id, after, window):
            if len(shown) == limit:
                return TransitionPage(
                    transitions=tuple(shown), cursor=_format_cursor(shown, task_id)
                )
            shown.append(step)
        last, tasks = task_id, tasks + 1
        if tasks == TASKS_MAX:
            return TransitionPage(transitions=tuple(shown), cursor=f"{last}{_MARK}{_ALL}")
    return TransitionPage(transitions=tuple(shown), cursor=None)


async def of_task(
    store: Store, task_id: str, window: Window, *, limit: int, cursor: str | None = None
) -> TransitionPage:
    """Return the transitions of one task, or raise TaskNotFound."""
    of, after = (task_id, 0) if cursor is None else _read(cursor)
    if of != task_id:
        raise InvalidInput(f"{cursor!r} is a cursor of another task")
    if await store.views.detail(task_id) is None:
        raise TaskNotFound(task_id)
    steps_left = await _steps(store, task_id, after, window)
    shown = steps_left[:limit]
    more = len(steps_left) > limit
    return TransitionPage(
        transitions=tuple(shown), cursor=_format_cursor(shown, task_id) if more else None
    )


def _changed_since(where: Filter, window: Window) -> Filter:
    """Leave out the tasks to which nothing has happened in that time."""
    if window.since is None:
        return where
    moment = window.since - 0.001  # a filter leaves out what changed at the moment itself
    return msgspec.structs.replace(where, updated_after=max(moment, where.updated_after or 0.0))


async def _tasks(store: Store, where: Filter, cursor: str | None) -> AsyncIterator[tuple[str, int]]:
    """Yield the ids of tasks, each with the version behind which its steps are wanted."""
    if cursor is not None:
        cursor, after = _read(cursor)
        if after < _ALL:
            yield cursor, after
    while True:
        page = await store.views.find(where, limit=TASKS, cursor=cursor)
        for task in page.tasks:
            yield task.id, 0
        cursor = page.cursor
        if cursor is None:
            return


async def _steps(store: Store, task_id: str, after: int, window: Window) -> list[HistoryStep]:
    detail = await store.views.detail(task_id)
    if detail is None:  # deleted meanwhile
        return []
    made = steps(detail.task, detail.events)
    return [step for step in made if step.version > after and window.holds(step.at)]


def _format_cursor(shown: list[HistoryStep], task_id: str) -> str:
    """Write where a page ends: behind its last step, which may be one of the task before."""
    last = shown[-1]
    return f"{last.task_id}{_MARK}{last.version if last.task_id == task_id else _ALL}"


def _read(cursor: str) -> tuple[str, int]:
    task_id, mark, version = cursor.rpartition(_MARK)
    if not mark or not task_id or not version.isascii() or not version.isdigit():
        raise InvalidInput(f"{cursor!r} is not a cursor of transitions")
    return task_id, int(version[:17])
