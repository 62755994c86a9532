"""The stage of a bulk action: one round of it.

What a round acts on was picked and saved by the round before. So after a crash the next holder
finds the same tasks, and sees from their versions and events which of them have been acted on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from holdfast.app.bulk_order import STATE, Order, state_of
from holdfast.codec import Codec
from holdfast.domain import bulk, operate
from holdfast.domain.audit import Audit
from holdfast.domain.bulk import BulkState, Counts, Picked
from holdfast.domain.errors import Refused, Snooze, TaskNotFound, TenantMovedOn
from holdfast.domain.operate import Ask
from holdfast.domain.retry import Retry
from holdfast.domain.state import SETTLED, SUSPENDED, Command, Status
from holdfast.domain.task import By, Task
from holdfast.domain.transition import Applied, MovedOn, Transition
from holdfast.ports import Filter, Store
from holdfast.registry import StageDef, TaskType
from holdfast.runtime.context import Context
from holdfast.runtime.timing import sleep

if TYPE_CHECKING:
    from holdfast.app.core import Holdfast

PAGE = 500
COUNT_LIMIT = 10_000  # tasks counted before it begins
PAGES_LIMIT = 20  # looked through in one round for the next to act on
SLICE_SECONDS = 0.1  # what may go in that time goes in one write
LOOK_SECONDS = 1.0  # whether it was stopped
POLL_SECONDS = (1.0, 15.0)  # for the ends of those that were set going
TIMEOUT_SECONDS = 300.0
REASON_LIMIT_CHARS = 2_000
RETRY = Retry(max=20, backoff=("1s", "5s", "30s", "1m"))
RESTS = SETTLED | SUSPENDED | {Status.PAUSED}


def declare(app: Holdfast) -> TaskType:
    """The type of its tasks, on every app."""

    async def act(ctx: Context, order: Order) -> Any:
        return await Round(app, ctx, order).run()

    declared = TaskType(
        name=bulk.TYPE,
        payload=Codec(Order),
        result=Codec(Any),
        queue=bulk.QUEUE,
        hold=False,
        workflow=False,
        keep_seconds=app.settings.keep,
        suspend_on_invalid=False,
    )
    declared.add(
        StageDef(
            name=bulk.STAGE,
            call=act,
            is_async=True,
            takes_payload=True,
            retry=RETRY,
            timeout_seconds=TIMEOUT_SECONDS,
            result=Codec(Any),
        )
    )
    return declared


def actor_of(bulk_id: str) -> str:
    return f"bulk:{bulk_id}"


class Round:
    def __init__(self, app: Holdfast, ctx: Context, order: Order) -> None:
        self._app = app
        self._ctx = ctx
        self._order = order
        self._store: Store = app.store
        self._clock = app.clock
        self._by = _by(ctx.task_id, order.by)

    async def run(self) -> Any:
        """The counts when all is done or it was halted; until then it snoozes."""
        own = await self._own()
        where = self._order.frozen(own.created_at)
        state = state_of(self._ctx.data)
        delay = 0.0
        if state is None:
            state = await self._counted(where)
        elif state.pending:
            state, delay = await self._act(state)
        if self._order.canary is not None:
            state = await self._watch(state)
        if not state.pending and not state.halted:
            state = await self._pick(state, where)
        self._save(state)
        if bulk.is_over(state, self._order.canary, now=self._now):
            return await self._end(state)
        raise Snooze(delay if state.pending else self._poll_seconds(state))

    # -- acting

    async def _act(self, state: BulkState) -> tuple[BulkState, float]:
        """On what the round before has picked; and how long to wait before the next."""
        rate, began = self._order.rate, self._clock.steady()
        size, looked_at = max(1, round(rate * SLICE_SECONDS)), began
        counts, going, done = Counts(), list[str](), 0
        while part := state.pending[done : done + size]:
            if self._clock.steady() - looked_at >= LOOK_SECONDS:
                looked_at = self._clock.steady()
                if await self._is_asked():
                    break
            if (wait := began + done / rate - self._clock.steady()) > 0:
                await sleep(self._clock, wait)
            told, went = await self._act_on(part)
            counts, done = bulk.added(counts, told), done + len(part)
            going += went
        watched = going if self._order.canary else []
        rest = max(0.0, began + done / rate - self._clock.steady())
        return bulk.acted(state, counts, watched, state.pending[done:]), rest

    async def _act_on(self, part: Sequence[Picked]) -> tuple[Counts, list[str]]:
        tasks = await self._store.load([one.task_id for one in part])
        refused: Counter[str] = Counter()
        gone, batch, moved = 0, list[Transition](), list[str]()
        for one, task in zip(part, tasks, strict=True):
            if task is None:
                gone += 1
            elif task.version != one.version:
                moved.append(task.id)
            elif (decided := await self._decided(task, refused)) is not None:
                batch.append(decided)
        outcomes = await self._store.apply(batch) if batch else []
        applied = list[Task]()
        for transition, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Applied):
                applied.append(outcome.task)
            elif isinstance(outcome, MovedOn):
                task = transition.before
                await self._refuse(task, TenantMovedOn(task.id, task.tenant), refused)
            else:
                moved.append(transition.task_id)
        mine = [task_id for task_id in moved if await self._was_mine(task_id)]
        await self._tell_plans(applied)
        going = [*(task.id for task in applied), *mine]
        changed = len(moved) - len(mine)
        return Counts(done=len(going), refused=refused, changed=changed, gone=gone), going

    async def _decided(self, task: Task, refused: Counter[str]) -> Transition | None:
        order = self._order
        try:
            return bulk.decision(
                order.command,
                task,
                self._ask(task),
                force=order.force,
                from_checkpoint=order.from_checkpoint,
            )
        except Refused as error:
            await self._refuse(task, error, refused)
            return None

    def _ask(self, task: Task) -> Ask:
        # One bulk acts on a task once, so this names the write and a resend of it.
        return Ask(by=self._by, now=self._now, request=f"{self._by.actor}:{task.version}")

    async def _refuse(self, task: Task, error: Refused, refused: Counter[str]) -> None:
        refused[error.code] += 1
        entry = operate.refusal(task, Command(self._order.command), self._ask(task), error.code)
        await self._store.audit(entry)

    async def _was_mine(self, task_id: str) -> bool:
        """It has changed since it was picked: was it by a round that died before it could say?"""
        detail = await self._store.detail(task_id)
        events = detail.events if detail else ()
        found = (getattr(event, "by", None) for event in reversed(events))
        return any(isinstance(by, By) and by.actor == self._by.actor for by in found)

    async def _tell_plans(self, tasks: Sequence[Task]) -> None:
        plans = {task.plan for task in tasks if task.plan is not None}
        if plans:
            await self._store.plans.wake(sorted(plans))

    async def _is_asked(self) -> bool:
        """To stop or to pause: then how far it has got is saved, and the request applied."""
        own = await self._own()
        return own.cancel_requested or own.pause_requested

    async def _own(self) -> Task:
        [own] = await self._store.load([self._ctx.task_id])
        if own is None:
            raise TaskNotFound(self._ctx.task_id)
        return own

    # -- picking

    async def _counted(self, where: Filter) -> BulkState:
        matching, more, _ = await matching_of(self._store, where)
        return BulkState(matching=matching, more=more)

    async def _pick(self, state: BulkState, where: Filter) -> BulkState:
        """The next to act on; they are acted on only when this is saved."""
        order = self._order
        left = bulk.room(state, rate=order.rate, limit=order.limit, canary=order.canary)
        if order.limit is not None and state.counts.taken >= order.limit:
            return replace(state, looked_through=True)
        picked, cursor, ended = list[Picked](), state.cursor, state.looked_through
        for _ in range(PAGES_LIMIT):
            if ended or len(picked) >= left:
                break
            limit = min(PAGE, left - len(picked))
            page = await self._store.find(where, limit=limit, cursor=cursor)
            picked += [Picked(task.id, task.version) for task in page.tasks if _is_meant(task)]
            cursor, ended = page.cursor, page.cursor is None
        return replace(state, pending=tuple(picked), cursor=cursor, looked_through=ended)

    # -- watching

    async def _watch(self, state: BulkState) -> BulkState:
        assert self._order.canary is not None
        peeks = await self._store.peek(state.watched) if state.watched else []
        rests = {
            task_id: peek.status if peek else None
            for task_id, peek in zip(state.watched, peeks, strict=True)
            if peek is None or peek.status in RESTS
        }
        state = bulk.saw(state, rests, now=self._now)
        return bulk.judged(state, self._order.canary, now=self._now)

    def _poll_seconds(self, state: BulkState) -> float:
        """The longer nothing came to rest, the longer until the next look."""
        least, most = POLL_SECONDS
        if state.waits_since is None:
            return 0.0
        return min(most, max(least, (self._now - state.waits_since) / 5))

    # -- the end of a round

    def _save(self, state: BulkState) -> None:
        self._ctx.data[STATE] = msgspec.to_builtins(state)
        most = state.matching if self._order.limit is None else self._order.limit
        taken = state.counts.taken
        self._ctx.progress(min(1.0, taken / max(1, most, taken)), f"{taken} of {most}")

    async def _end(self, state: BulkState) -> Any:
        if state.halted:
            by = By(actor=self._by.actor, origin=self._by.origin, reason=state.halted)
            entry = Audit(
                task_id=by.actor,
                command="halt",
                by=by,
                at=self._now,
                before=Status.RUNNING,
                after=Status.COMPLETED,
            )
            await self._store.audit(entry)
        return msgspec.to_builtins(state.counts) | {"halted": state.halted}

    @property
    def _now(self) -> float:
        return self._clock.now()


async def matching_of(store: Store, where: Filter) -> tuple[int, bool, list[Task]]:
    """How many match, as far as is looked; whether there are more; and those looked at."""
    found, cursor = list[Task](), None
    for _ in range(COUNT_LIMIT // PAGE):
        page = await store.find(where, limit=PAGE, cursor=cursor)
        found += [task for task in page.tasks if _is_meant(task)]
        cursor = page.cursor
        if cursor is None:
            break
    return len(found), cursor is not None, found


def _is_meant(task: Task) -> bool:
    """A bulk action does not touch itself nor its like."""
    return task.type != bulk.TYPE


def _by(bulk_id: str, starter: By) -> By:
    """Who acts; and in the words of the starter, who wanted it, where and why."""
    said = f"{starter.actor}: {starter.reason}" if starter.reason else starter.actor
    said = said[:REASON_LIMIT_CHARS]
    return By(actor=actor_of(bulk_id), origin=starter.origin, reason=said)
