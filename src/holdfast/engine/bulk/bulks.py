"""Bulk actions: a command for all tasks that a filter matches, carried out by the workers."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from holdfast.domain import bulk
from holdfast.domain.bulk import BulkCommand, Canary
from holdfast.domain.errors import BulkNotFound, InvalidInput, Refused
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.task import Task
from holdfast.engine.actor_calls import ActorCalls
from holdfast.engine.bulk import requests, rounds
from holdfast.engine.bulk.actions import ONWARD
from holdfast.engine.bulk.order import (
    BulkInfo,
    BulkOrder,
    BulkPreview,
    check_filter,
    check_limit,
    info_of,
)
from holdfast.engine.handle import info_of as task_info_of
from holdfast.engine.operations.expired_checkpoints import Forecast, forecast
from holdfast.ports import Detail, Filter
from holdfast.runtime.deadlines import wait_within

SAMPLE = 10
FOUND_LIMIT = 100

__all__ = ["BulkHandle", "BulkInfo", "BulkNotFound", "BulkPage", "BulkPreview", "Bulks", "Canary"]


class BulkPage(msgspec.Struct, frozen=True, kw_only=True):
    bulks: tuple[BulkInfo, ...]
    cursor: str | None


class Bulks(ActorCalls):
    """The bulk actions of an app: preview, start and find them."""

    async def preview(
        self,
        command: BulkCommand | str,
        where: Filter,
        *,
        everything: bool = False,
        force: bool = False,
        from_checkpoint: bool = True,
    ) -> BulkPreview:
        """Return what the action would do if it were started now; nothing is written."""
        bulk_command = _command(command)
        where = check_filter(bulk_command, where, everything=everything)
        matching, more, tasks = await rounds.matching_of(self._app.store, where)
        ask = OperatorRequest(by=self._by, now=self._app.clock.now(), request="preview")

        def is_refused(task: Task) -> bool:
            try:
                bulk.decision(bulk_command, task, ask, force=force, from_checkpoint=from_checkpoint)
            except Refused:
                return True
            return False

        ahead = await self._forecast(bulk_command, tasks, from_checkpoint=from_checkpoint)
        return BulkPreview(
            matching=matching,
            more=more,
            sample=tuple(task_info_of(task, None) for task in tasks[:SAMPLE]),
            refused_now=sum(map(is_refused, tasks)),
            starts_over=len(ahead.ids),
            starting_over=ahead.ids[:SAMPLE],
            checkpoints_judged=ahead.judged,
            checkpoints_to_judge=ahead.total,
            code_unknown=ahead.code_unknown,
        )

    async def _forecast(
        self, command: BulkCommand, tasks: list[Task], *, from_checkpoint: bool
    ) -> Forecast:
        if command not in ONWARD:
            return Forecast()
        if command is BulkCommand.RETRY and not from_checkpoint:
            ids = tuple(task.id for task in tasks if task.continues_from_checkpoint)
            return Forecast(ids=ids, judged=len(ids), total=len(ids))
        return await forecast(
            self._app.store, tasks, now=self._app.clock.now(), find=self._app.registry.find
        )

    async def start(
        self,
        command: BulkCommand | str,
        where: Filter,
        *,
        rate: float = 50.0,
        canary: Canary | None = None,
        reason: str = "",
        force: bool = False,
        from_checkpoint: bool = True,
        key: str | None = None,
        limit: int | None = None,
        everything: bool = False,
    ) -> BulkHandle:
        """Start a bulk action, which is durable when this returns; workers then carry it out.

        The same key with the same order returns the action that was started before.
        """
        bulk_command = _command(command)
        order = BulkOrder(
            command=bulk_command,
            where=check_filter(bulk_command, where, everything=everything),
            rate=bulk.check_rate(rate),
            canary=None if canary is None else bulk.check_canary(bulk_command, canary),
            limit=check_limit(limit),
            force=force,
            from_checkpoint=from_checkpoint,
            by=self._by_reason(reason),
        )
        return BulkHandle(self, await requests.start(self._app, order, key))

    async def get(self, bulk_id: str) -> BulkHandle:
        """Return the handle of a bulk action; BulkNotFound if there is none."""
        await self.detail(bulk_id)
        return BulkHandle(self, bulk_id)

    async def find(self, *, limit: int = 20, cursor: str | None = None) -> BulkPage:
        """Return a page of bulk actions, the newest first."""
        where = Filter(type=bulk.TYPE, queue=bulk.QUEUE)
        page = await self._app.store.views.find(where, limit=min(limit, FOUND_LIMIT), cursor=cursor)
        details = await asyncio.gather(
            *(self._app.store.views.detail(task.id) for task in page.tasks)
        )
        bulks = tuple(info_of(detail) for detail in details if detail is not None)
        return BulkPage(bulks=bulks, cursor=page.cursor)

    async def detail(self, bulk_id: str) -> Detail:
        """Return the record of the task that carries the action out."""
        detail = await self._app.store.views.detail(bulk_id)
        if detail is None or detail.task.type != bulk.TYPE:
            raise BulkNotFound(bulk_id)
        return detail

    async def ask(self, bulk_id: str, command: str, reason: str) -> BulkInfo:
        """Stop, pause or resume the action itself."""
        await self.detail(bulk_id)
        await requests.ask(self._app, bulk_id, command, self._by_reason(reason))
        return info_of(await self.detail(bulk_id))

    async def wait(self, bulk_id: str, timeout: float | str | None) -> BulkInfo:
        """Wait until the action is over or suspended."""
        await self.detail(bulk_id)
        wait = partial(self._app.waiters.wait_until_stopped, bulk_id)
        await wait_within(self._app.clock, timeout, bulk_id, wait)
        return info_of(await self.detail(bulk_id))


class BulkHandle:
    """A bulk action: read its progress, wait for its end, and stop, pause or resume it."""

    __slots__ = ("_bulks", "id")

    def __init__(self, bulks: Bulks, bulk_id: str) -> None:
        self._bulks, self.id = bulks, bulk_id

    def __repr__(self) -> str:
        return f"BulkHandle({self.id!r})"

    async def info(self) -> BulkInfo:
        """Return the progress of the action."""
        return info_of(await self._bulks.detail(self.id))

    async def stop(self, reason: str = "") -> BulkInfo:
        """Stop the action for good: its round ends within about a second, and what is done stays
        done."""
        return await self._bulks.ask(self.id, "stop", reason)

    async def pause(self, reason: str = "") -> BulkInfo:
        """Pause the action after its present round."""
        return await self._bulks.ask(self.id, "pause", reason)

    async def resume(self, reason: str = "") -> BulkInfo:
        """Continue a paused or suspended action."""
        return await self._bulks.ask(self.id, "resume", reason)

    async def wait(self, timeout: float | str | None = None) -> BulkInfo:
        """Wait until the action is over or suspended; ResultTimeout if not in time (it goes on)."""
        return await self._bulks.wait(self.id, timeout)


def _command(command: BulkCommand | str) -> BulkCommand:
    try:
        return BulkCommand(command)
    except ValueError:
        known = ", ".join(BulkCommand)
        raise InvalidInput(f"{command!r} is not a bulk command; write one of {known}") from None
