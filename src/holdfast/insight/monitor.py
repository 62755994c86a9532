"""Looks at the store for everybody in this process who wants to know, and judges what it sees."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from holdfast.domain.errors import HoldfastError, StoreError
from holdfast.engine.operations import switches
from holdfast.insight.outage_watch import OutageWatch
from holdfast.notify.alerts import AlertNotifier, Change, LastNotified
from holdfast.observe import alerts
from holdfast.observe.alerts import AlertRaised, Alerts, Name, Thresholds
from holdfast.observe.snapshot import Alert, Snapshot
from holdfast.ports import LIVE_LEASES, Clock
from holdfast.runtime.deadlines import sleep

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

log = logging.getLogger("holdfast.monitor")

FRESH_SECONDS = 2.0  # so long one look serves all
JUDGE_SECONDS = 5.0
EXAMINE_SECONDS = 300.0
EXAMINE_SHARE = 0.02  # of the time at most: an examination walks through all tasks
RECALL_SECONDS = 60.0
CHECK_SECONDS = 60.0  # between two looks at the store's settings
FINDINGS_LIMIT = 1_000
SUBSCRIBERS_LIMIT = 1_000

Subscriber: TypeAlias = Callable[[Change], None]


class Monitor:
    """The monitor of one process; every service judges by itself, and all of them judge alike."""

    def __init__(
        self, app: Holdfast, clock: Clock | None = None, *, lag: Callable[[], float] = lambda: 0.0
    ) -> None:
        """``lag``: how late events reach their readers, in seconds."""
        self._app = app
        self._clock = clock or app.clock
        self._lag = lag
        self._limits = Thresholds(backlog=app.settings.backlog)
        self._standing: Alerts = {}
        self._told: Alerts = {}
        self._asked_at = 0.0  # what was told
        self._findings: Mapping[str, int] | None = None
        self._seen: Snapshot | None = None
        self._seen_at = 0.0
        self._look: asyncio.Task[Snapshot] | None = None
        self._subscribers: dict[int, Subscriber] = {}
        self._telling = AlertNotifier(app)
        self._outages = OutageWatch()
        self._number = 0

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(self._standing.values())

    @property
    def served(self) -> frozenset[str]:
        """The queues of the workers that lived at the last look."""
        live = self._seen.live if self._seen is not None else ()
        return frozenset(queue for worker in live for queue in worker.beat.queues)

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Called on the loop with what changes; call what is returned to end it."""
        if len(self._subscribers) >= SUBSCRIBERS_LIMIT:
            raise HoldfastError(f"{SUBSCRIBERS_LIMIT} listen to the alerts already")
        self._number += 1
        number = self._number
        self._subscribers[number] = callback

        def leave() -> None:
            self._subscribers.pop(number, None)

        return leave

    # -- looking

    async def snapshot(self) -> Snapshot:
        """Return a snapshot that is at most two seconds old; concurrent callers share one read."""
        if self._seen is not None and self._clock.steady() - self._seen_at < FRESH_SECONDS:
            return self._seen
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._take())
            self._look.add_done_callback(self._finish_snapshot)
        return await asyncio.shield(self._look)  # one who gives up takes it from no other

    def _finish_snapshot(self, look: asyncio.Task[Snapshot]) -> None:
        if self._look is look:
            self._look = None
        if look.cancelled() or look.exception() is not None:
            return
        self._seen, self._seen_at = look.result(), self._clock.steady()

    async def _take(self) -> Snapshot:
        now = self._clock.now()
        try:
            facts = await self._facts()
            told = await self._recall_notified(facts)
            if told.raised or told.cleared:
                facts = await self._facts()  # no older than what was told
        except (StoreError, TimeoutError) as error:
            self._standing = alerts.away(str(error), self._standing, now=now)
            raise
        self._judge(facts, told, now)
        return replace(facts, alerts=self.alerts)

    async def _recall_notified(self, facts: Snapshot) -> LastNotified:
        """Return the alerts that hooks were last told, maybe by services that are gone."""
        if self._asked_at and self._clock.steady() - self._asked_at < RECALL_SECONDS:
            return LastNotified({}, set())
        told = await self._telling.last_notified(
            [*self._shared_alerts(facts), *alerts.OF_ONE_PROCESS]
        )
        self._asked_at = self._clock.steady()
        return told

    def _judge(self, facts: Snapshot, told: LastNotified, now: float) -> None:
        """Judge on from what was told last, so that all services clear at the same value. An alert
        that was told and is no longer so is told again, as it is."""
        shared = set(self._shared_alerts(facts))
        raised = {name: one for name, one in told.raised.items() if name in shared}
        ended = (told.cleared & shared) - raised.keys()
        own = {name: one for name, one in self._standing.items() if name not in ended}
        self._standing = alerts.judge(facts, self._limits, {**raised, **own}, now=now)
        wrong = told.cleared & self._standing.keys()
        self._told = {
            **{name: one for name, one in raised.items() if name not in self._standing},
            **{name: one for name, one in self._told.items() if name not in wrong},
        }

    def _shared_alerts(self, facts: Snapshot) -> list[Name]:
        """Return the alerts that all services share, also those of queues without tasks."""
        app = self._app
        types = map(app.registry.find, app.registry.names())
        declared = (one.queue for one in types if one is not None)
        known = {*facts.queues, *declared, *app.settings.queue_names, *app.settings.backlog}
        groups = [*(one.fingerprint for one in facts.outages), *self._groups()]
        return alerts.shared_names(sorted(known - {alerts.EVERY_OTHER}), dict.fromkeys(groups))

    def _groups(self) -> list[str]:
        """The error groups of which an outage stands or was told."""
        return [name for code, name in (*self._standing, *self._told) if code in alerts.OF_GROUPS]

    def _declared_stages(self) -> tuple[tuple[str, str], ...]:
        registry = self._app.registry
        types = map(registry.find, registry.names())
        return tuple((one.name, stage) for one in types if one for stage in one.stage_names)

    async def _facts(self) -> Snapshot:
        app, store = self._app, self._app.store
        stats = await store.views.stats()
        workers = await store.views.workers(live_within_seconds=LIVE_LEASES * app.settings.lease)
        return Snapshot(
            stats=stats,
            workers=tuple(workers),
            switches=tuple(await switches.active_switches(store, app.clock.now())),
            durable=store.durable,
            degraded=app.degraded,
            findings=self._findings,
            event_lag_seconds=self._lag(),
            stages=self._declared_stages(),
            outages=await self._outages.look(store, stats, workers),
        )

    # -- telling

    async def run(self) -> None:
        """Until it is cancelled. An outage is an alert, and no end."""
        beside = self._examine_now_and_then(), self._check_now_and_then()
        examining = asyncio.gather(*beside, return_exceptions=True)
        try:
            while True:
                try:
                    await self.tick()
                except Exception:
                    log.exception("the alerts could not be judged")
                await sleep(self._clock, JUDGE_SECONDS)
        finally:
            examining.cancel()
            await asyncio.gather(examining, return_exceptions=True)

    async def tick(self) -> None:
        """Look, and tell what is not as it was told before."""
        with suppress(StoreError, TimeoutError):  # that is an alert by now
            await self.snapshot()
        before, self._told = self._told, self._standing
        for change in alerts.changes(before, self._told, now=self._clock.now()):
            _log(change)
            self._tell(change)
            self._telling.note(change)
        await self._telling.deliver()

    def _tell(self, change: Change) -> None:
        for subscriber in tuple(self._subscribers.values()):
            try:
                subscriber(change)
            except Exception:
                log.exception("a listener failed on %s", change.alert.code)

    # -- examining

    async def _examine_now_and_then(self) -> None:
        rest = EXAMINE_SECONDS * (0.5 + self._app.chance.random())  # not all services at once
        while True:
            await sleep(self._clock, rest)
            began = self._clock.steady()
            await _attempt(self.examine, "the store could not be examined", logging.INFO)
            rest = max(EXAMINE_SECONDS, (self._clock.steady() - began) / EXAMINE_SHARE)

    async def _check_now_and_then(self) -> None:
        """Check whether the store is durable: its settings may be changed while it runs."""
        failure = "the settings of the store could not be looked at"
        while True:
            await sleep(self._clock, CHECK_SECONDS)
            await _attempt(self._app.store.admin.checks, failure, logging.WARNING)

    async def examine(self) -> None:
        """Compare, and mend nothing."""
        found = await self._app.store.admin.doctor(fix=False, limit=FINDINGS_LIMIT)
        self._findings = Counter(one.invariant for one in found if not one.mended)


async def _attempt(call: Callable[[], Awaitable[object]], failure: str, level: int) -> None:
    """Call, and log what it raises: an outage of the store at this level."""
    try:
        await call()
    except (StoreError, TimeoutError) as error:
        log.log(level, "%s: %s", failure, error)
    except Exception:
        log.exception(failure)


def _log(change: Change) -> None:
    alert = change.alert
    about = f" ({alert.name[1]})" if alert.name[1] else ""
    if isinstance(change, AlertRaised):
        log.warning("alert %s%s raised: %s", alert.code, about, alert.message)
    else:
        log.info("alert %s%s cleared after %.0f s", alert.code, about, change.at - alert.since)
