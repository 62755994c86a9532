"""The reason why a task does not run, in plain sentences, and what to do about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from msgspec.structs import replace

from holdfast.domain.errors import TaskNotFound
from holdfast.domain.notification import OWN
from holdfast.domain.phrases import acts, ago, count, format_names, span
from holdfast.domain.plan.plan import Plan
from holdfast.domain.task import events as ev
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By, FailureKind
from holdfast.engine.operations import switches
from holdfast.engine.operations.expired_checkpoints import Find, load_outlook, not_known
from holdfast.engine.visibility import WHOLE, Sight
from holdfast.insight.why.crashes import describe_crashes
from holdfast.insight.why.plan import describe_wait, is_driven
from holdfast.ports import LIVE_LEASES, Detail, Store, Switch, SwitchSetting, WorkerInfo
from holdfast.settings import Settings

LINE_LOOKED_AT = 1000


async def explain(
    store: Store,
    task_id: str,
    settings: Settings,
    *,
    now: float,
    sight: Sight = WHOLE,
    find: Find = not_known,
) -> str:
    """Explain why a task does not run; ``find`` returns the declared type of a task."""
    detail = await store.views.detail(task_id)
    if detail is None:
        return await _explain_deleted(store, task_id)
    explanation = Explanation(store, detail, settings, now=now, sight=sight, find=find)
    return await explanation.format()


async def _explain_deleted(store: Store, task_id: str) -> str:
    [peek] = await store.views.peek([task_id])
    if peek is None:
        raise TaskNotFound(task_id)
    return f"It ended as {peek.status}; its record is gone, only its result is still kept."


class Explanation:
    def __init__(
        self,
        store: Store,
        detail: Detail,
        settings: Settings,
        *,
        now: float,
        sight: Sight = WHOLE,
        find: Find = not_known,
    ) -> None:
        self._store = store
        self._find = find
        self._sight = sight
        self._detail = detail = sight.detail(detail)
        self._task = detail.task
        self._settings = settings
        self._now = now
        self._switches: Sequence[SwitchSetting] = ()

    async def format(self) -> str:
        """Return the explanation as sentences."""
        formats: dict[Place, Callable[[], Awaitable[str]]] = {
            Place.HELD: self._explain_unreleased,
            Place.READY: self._explain_ready,
            Place.LINE: self._explain_line,
            Place.LATER: self._explain_later,
            Place.LEASED: self._explain_leased,
            Place.PARKED: self._explain_parked,
            Place.SETTLED: self._explain_settled,
        }
        self._switches = await switches.active_switches(self._store, self._now)
        return await formats[self._task.place]()

    @property
    def _hold(self) -> str:
        """Return who holds the tenant of the task, as the reader may know it; empty: nobody."""
        tenant = self._task.tenant
        for off in self._switches:
            if tenant is not None and (off.switch, off.name) == (Switch.HOLD, tenant):
                if self._sight.limited:
                    return switches.format_hold_for_tenant(off, self._now)
                return switches.format_hold(off, self._now, off.by.reason)
        return ""

    def _after_release(self) -> str:
        hold = self._hold
        return f" It does not run before its tenant is released: {hold}." if hold else ""

    # -- the task could run

    async def _explain_unreleased(self) -> str:
        task, accepted = self._task, f"It was accepted {self._since()}"
        if task.plan is None:
            return f"{accepted} and is held back: it waits to be released.{self._after_release()}"
        [plan] = await self._store.plans.load([task.plan])
        if plan is None:
            return (
                f"{accepted} for plan {task.plan}, which is gone, so nothing will release it. "
                f"`holdfast tasks cancel {task.id}` ends it."
            )
        plan = replace(plan, reason=None) if self._sight.limited else plan
        awaits = await describe_wait(self._store, task, plan, self._now)
        driver = await self._undriven(plan)
        return f"{accepted} and waits for plan {plan.id}, {awaits}{driver}{self._after_release()}"

    async def _undriven(self, plan: Plan) -> str:
        workers = await self._workers() if is_driven(plan) else ()
        if not is_driven(plan) or any(worker.live for worker in workers):
            return ""
        return f" But {_no_worker_text(workers)} Start one: `holdfast worker APP`."

    async def _explain_ready(self) -> str:
        task = self._task
        here = f"It has been ready in queue {task.queue!r} for {span(self._dwelt)}"
        crashes = describe_crashes(task, self._settings.crash_limit)
        workers = await self._workers()
        obstacle = self._obstacle(workers)
        if self._hold:
            more = f" Once released, it still waits: {obstacle}" if obstacle else ""
            return f"{here}, but {self._hold}.{more}{crashes}"
        if obstacle:
            return f"{here}, but {obstacle}{crashes}"
        return f"{here}; {self._takers(workers)}{crashes}"

    def _obstacle(self, workers: Sequence[WorkerInfo]) -> str:
        """Return why no worker can take the task, and what to do; empty: some worker can."""
        task = self._task
        for off in self._switches:
            if (off.switch, off.name) == (Switch.CLAIMING, task.queue):
                return f"{self._switched_off(off)}."
        live = [worker for worker in workers if worker.live]
        if not live:
            return f"{_no_worker_text(workers)} Start one: `holdfast worker APP`."
        serving = [worker for worker in live if task.queue in worker.beat.queues]
        if not serving:
            known = format_names(
                [format_worker(w, f"queues {', '.join(w.beat.queues)}") for w in live]
            )
            return (
                f"no live worker serves that queue. Alive: {known}. "
                f"Start one with `--queues {task.queue}`."
            )
        if not any(task.type in worker.beat.types for worker in serving):
            return self._unknown_type(serving)
        return ""

    def _takers(self, workers: Sequence[WorkerInfo]) -> str:
        task = self._task
        knowing = [
            worker
            for worker in workers
            if worker.live and task.queue in worker.beat.queues and task.type in worker.beat.types
        ]
        free = [worker for worker in knowing if worker.beat.running < worker.beat.slots]
        if not free:
            busy = format_names(
                [format_worker(w, f"{w.beat.running}/{w.beat.slots}") for w in knowing]
            )
            return (
                f"all slots of the workers that could run it are busy: {busy}. "
                "It runs when a slot is free; more workers or slots let it run sooner."
            )
        names = format_names([format_worker(worker) for worker in free])
        return f"{names} can run it and will claim it soon."

    def _switched_off(self, off: SwitchSetting) -> str:
        if self._sight.limited:
            return switches.format_switch_for_tenant(off, self._now)
        return switches.format_switch(off, self._now, off.by.reason)

    def _unknown_type(self, serving: Sequence[WorkerInfo]) -> str:
        task = self._task
        names = format_names([format_worker(worker) for worker in serving])
        since = f"; a worker first gave it back {self._back(task.unknown_since)}"
        return (
            f"no live worker of that queue knows its type {task.type!r}: {names}"
            f"{since if task.unknown_since else ''}. Start a worker whose app declares it."
        )

    async def _explain_line(self) -> str:
        task = self._task
        [view] = await self._store.views.tenants([task.tenant or ""], line_limit=LINE_LOOKED_AT)
        active = await self._store.views.detail(view.active) if view.active else None
        if active is None or active.task.id == task.id:
            return (
                f"It is in the line of tenant {task.tenant}, and no task is before it, but the "
                f"line has not moved. `holdfast doctor --fix` repairs that.{self._after_release()}"
            )
        line = view.line
        number = line.index(task.id) + 1 if task.id in line else f"over {len(line)}"
        before = Explanation(
            self._store, active, self._settings, now=self._now, sight=self._sight, find=self._find
        )
        parked = active.task.place is Place.PARKED
        closed = "That task keeps the line closed" if parked else "About that task"
        return (
            f"It is number {number} in the line of tenant {task.tenant}, behind task "
            f"{active.task.id}. {closed}: {await before.format()}"
        )

    async def _explain_later(self) -> str:
        now = (await self._store.views.stats()).now
        due = self._task.due or now
        wait = due - now
        when = f"is due in {span(wait)} ({iso(due)})" if wait > 0 else f"was due {ago(-wait)}"
        late = ""
        if wait <= 0 and not self._hold:
            late = await self._mover("moves it within a second", "puts it back in its queue")
        crashes = describe_crashes(self._task, self._settings.crash_limit)
        return f"It {when}{late}: {self._what_comes()}{crashes}{self._after_release()}"

    def _what_comes(self) -> str:
        task = self._task
        if task.unknown_since is not None:
            return (
                f"it was given back {self._since()} by a worker that does not know its type "
                f"{task.type!r}. Start a worker whose app declares it."
            )
        if (snoozed := self._snooze_event()) is not None:
            return (
                f"stage {snoozed.stage!r} has snoozed for {span(snoozed.delay_seconds)} and is "
                f"then called again; nothing went wrong. `holdfast tasks cancel {task.id}` ends it."
            )
        error = f" The last error: {task.failure.summary}." if task.failure else ""
        if task.outage_since is not None:
            return self._waits_out(task.outage_since) + error
        if task.status is Status.ROLLING_BACK:
            return f"then a worker {self._undoes()}, attempt {task.attempt}.{error}"
        # Only of a stage that has failed does the record know how often it may.
        tried = f"{task.failures + 1} of {task.retry_max}" if task.failures else f"{task.attempt}"
        return f"then stage {task.at_stage!r} runs, attempt {tried}.{error}{self._at_once()}"

    def _waits_out(self, since: float) -> str:
        task = self._task
        back = task.status is Status.ROLLING_BACK
        what = f"a worker {self._undoes()}" if back else f"stage {task.at_stage!r} runs"
        waits = (
            f"then {what} again. It waits for the end of an outage, which is no failure of the "
            f"task: {count(task.outages, 'outage')} in a row, the first {self._back(since)}."
        )
        return waits if back else f"{waits}{self._at_once()}"

    def _at_once(self) -> str:
        """Return how to run the task now; for a held tenant there is no way."""
        return "" if self._hold else f" `holdfast tasks retry {self._task.id}` runs it now."

    def _snooze_event(self) -> ev.TaskSnoozed | None:
        last = self._detail.events[-1] if self._detail.events else None
        return last if isinstance(last, ev.TaskSnoozed) else None

    # -- the task runs

    async def _explain_leased(self) -> str:
        lease = self._task.lease
        if lease is None:
            counts = "No worker holds its lease although it counts as running"
            return f"{counts}: `holdfast doctor --fix` repairs that."
        doing = self._undoes() if self._task.status is Status.ROLLING_BACK else self._runs()
        if not lease.until:
            return (
                f"Worker {lease.owner} {doing}, started {self._format_start()}, but the store does "
                "not know until when its lease holds: `holdfast doctor --fix` repairs that."
            )
        left = lease.until - (await self._store.views.stats()).now
        if left <= 0:
            late = await self._mover(
                "takes it over within seconds", "takes it over", but=lease.owner
            )
            return (
                f"Worker {lease.owner} {doing}, but has not renewed its lease: it lapsed "
                f"{ago(-left)}{late}.{self._after_release()}"
            )
        return (
            f"Worker {lease.owner} {doing}, started {self._format_start()}; its lease holds for "
            f"{span(left)} more and is renewed while it lives.{self._progress()}{self._requests()}"
            f"{describe_crashes(self._task, self._settings.crash_limit)}{self._given_back()}"
        )

    def _given_back(self) -> str:
        if not self._hold:
            return ""
        part = "undo" if self._task.status is Status.ROLLING_BACK else "stage"
        return f" After this {part} it is given back, unless it ends with it: {self._hold}."

    def _runs(self) -> str:
        task = self._task
        if task.at_stage is None:
            return "finishes it"
        number = f"{task.last_completed + 2} of {len(task.stages)}"
        return f"runs stage {task.at_stage!r} ({number}, attempt {task.attempt})"

    def _undoes(self) -> str:
        task = self._task
        if task.next_undo < 0:
            return "ends the rollback"
        return f"undoes stage {task.stages[task.next_undo]!r}"

    def _progress(self) -> str:
        progress = self._detail.progress
        if progress is None:
            return ""
        message = f": {progress.message}" if progress.message else ""
        when = f" ({self._back(progress.at)})" if progress.at else ""
        return f" It reports {progress.fraction:.0%}{message}{when}."

    def _requests(self) -> str:
        task = self._task
        if task.cancel_requested:
            return f" A cancel was requested{self._asked_by(ev.CancelRequested)}; {acts(task)}."
        if task.pause_requested:
            return f" A pause was requested{self._asked_by(ev.PauseRequested)}; {acts(task)}."
        return ""

    # -- the task has stopped

    async def _explain_parked(self) -> str:
        task = self._task
        line, over = await self._who_waits(), await self._starts_over()
        if not task.suspended:
            by = self._asked_by(ev.PauseRequested, ev.TaskPaused)
            planned = task.plan is not None and f" by plan:{task.plan}" in by
            whole = f"plans resume {task.plan}` resumes the whole plan" if planned else ""
            return (
                f"It has been {task.status} for {span(self._dwelt)}{by}.{line} "
                f"`holdfast {whole or f'tasks resume {task.id}` resumes it'}.{over}"
                f"{self._after_release()}"
            )
        failure = task.failure
        cause = f"{failure.summary} (at stage {failure.stage!r})" if failure else "no error is kept"
        if failure is not None and failure.kind is FailureKind.OUTAGE:
            cause = f"an outage that began {self._back(task.outage_since)} has not ended: {cause}"
        since = f"It has been {task.status} for {span(self._dwelt)}"
        return (
            f"{since} and waits for a person: {cause}.{line} {self._ways_out()}{over}"
            f"{self._after_release()}"
        )

    def _ways_out(self) -> str:
        task = self._task
        is_back = task.status is Status.ROLLBACK_FAILED
        onward = "goes on with the rollback" if is_back else "tries again"
        can_undo = not is_back and not task.type.startswith(OWN)
        back = f"; `holdfast tasks rollback {task.id}` undoes what it did" if can_undo else ""
        return (
            f"`holdfast suspended resume {task.id}` {onward}{back}; "
            f"`holdfast suspended discard {task.id}` gives it up."
        )

    async def _starts_over(self) -> str:
        ahead = await load_outlook(self._store, self._task, now=self._now, find=self._find)
        if not ahead:
            return ""
        return f" It cannot continue: {ahead.why}; if it is resumed, it {ahead.message}."

    async def _who_waits(self) -> str:
        task = self._task
        if task.tenant is None or not task.hold:
            return ""
        [view] = await self._store.views.tenants([task.tenant])
        if view.active != task.id or not view.waiting:
            return ""
        return f" Behind it in the line of tenant {task.tenant}: {count(view.waiting, 'task')}."

    async def _explain_settled(self) -> str:
        task = self._task
        by = self._asked_by(
            ev.CancelRequested, ev.TaskCancelledEvent, ev.TaskDiscarded, ev.TaskRollingBack
        )
        how = by
        if task.status is Status.COMPLETED:
            late = any(self._last(ev.CancelRequested))
            how = f"; the cancel that was requested{by} came too late" if late else ""
        when = self._back(task.settled_at or task.status_since)
        return f"It has ended: {task.status} {when}{how}. Nothing more happens by itself."

    # -- parts of sentences

    @property
    def _dwelt(self) -> float:
        return self._now - self._task.status_since

    def _since(self) -> str:
        return ago(self._dwelt)

    def _back(self, at: float | None) -> str:
        return ago(self._now - at) if at is not None else ""

    def _format_start(self) -> str:
        started = next(self._last(ev.TaskStarted), None)
        return self._back(started.at) if started else self._since()

    def _asked_by(self, *kinds: type[ev.Event]) -> str:
        """Return who asked for it, from where and why, as the latest such event says."""
        actors = (getattr(event, "by", None) for event in self._last(*kinds))
        by = next((by for by in actors if isinstance(by, By)), None)
        if by is None:
            return f" ({self._task.reason})" if self._task.reason else ""
        place = f" on {by.origin}" if by.origin else ""
        return f" by {by.actor}{place}" + (f" ({by.reason})" if by.reason else "")

    def _last(self, *kinds: type[ev.Event]) -> Iterator[ev.Event]:
        return (event for event in reversed(self._detail.events) if isinstance(event, kinds))

    async def _workers(self) -> Sequence[WorkerInfo]:
        live_seconds = LIVE_LEASES * self._settings.lease
        return await self._store.views.workers(live_within_seconds=live_seconds)

    async def _mover(self, somebody: str, anybody: str, *, but: str | None = None) -> str:
        """Name a live worker that makes the store's own moves: any does, whatever it serves."""
        workers = [worker for worker in await self._workers() if worker.beat.worker != but]
        live = [format_worker(worker) for worker in workers if worker.live]
        if live:
            return f"; {format_names(live, 1)} {somebody}"
        return (
            f"; {_no_worker_text(workers, other=but is not None)[:-1]}, and only a worker {anybody}"
        )


def format_worker(worker: WorkerInfo, more: str = "") -> str:
    facts = f"{more}, " if more else ""
    return f"{worker.beat.worker} ({facts}last seen {ago(worker.seen_seconds_ago)})"


def _no_worker_text(workers: Sequence[WorkerInfo], *, other: bool = False) -> str:
    nobody = "no other worker is alive" if other else "no worker is alive"
    if not workers:
        return f"{nobody}."
    last = min(workers, key=lambda worker: worker.seen_seconds_ago)
    return f"{nobody}; {last.beat.worker} was last seen {ago(last.seen_seconds_ago)}."
