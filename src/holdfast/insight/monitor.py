"""The monitor reads the store for all parts of this process, and judges the alerts."""

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
from holdfast.runtime.cancellation import cancel_and_wait
from holdfast.runtime.deadlines import sleep

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

log = logging.getLogger("holdfast.monitor")

FRESH_SECONDS = 2.0  # a snapshot serves all callers for so long
JUDGE_SECONDS = 5.0
EXAMINE_SECONDS = 300.0
EXAMINE_SHARE = 0.02  # of the time at most: an examination reads all tasks
RECALL_SECONDS = 60.0
CHECK_SECONDS = 60.0  # between two checks of the store's settings
FINDINGS_LIMIT = 1_000
SUBSCRIBERS_LIMIT = 1_000

Subscriber: TypeAlias = Callable[[Change], None]


class Monitor:
    """The monitor of one process; every service judges by itself, and all of them judge alike."""

    def __init__(
        self, app: Holdfast, clock: Clock | None = None, *, lag: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Watch this app; ``lag`` says how many seconds late events reach their readers."""
        self._app = app
        self._clock = clock or app.clock
        self._lag = lag
        self._limits = Thresholds(backlog=app.settings.backlog)
        self._alerts: Alerts = {}
        self._notified: Alerts = {}
        self._asked_at = 0.0  # when the last notifications were read
        self._findings: Mapping[str, int] | None = None
        self._last: Snapshot | None = None
        self._taken_at = 0.0
        self._pending: asyncio.Task[Snapshot] | None = None
        self._subscribers: dict[int, Subscriber] = {}
        self._notifier = AlertNotifier(app)
        self._outages = OutageWatch()
        self._number = 0

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(self._alerts.values())

    @property
    def served(self) -> frozenset[str]:
        """Return the queues of the workers that were live in the last snapshot."""
        live = self._last.live if self._last is not None else ()
        return frozenset(queue for worker in live for queue in worker.beat.queues)

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call back on the loop with each change; the returned function ends the subscription."""
        if len(self._subscribers) >= SUBSCRIBERS_LIMIT:
            raise HoldfastError(f"the alerts have {SUBSCRIBERS_LIMIT} subscribers already")
        self._number += 1
        number = self._number
        self._subscribers[number] = callback

        def leave() -> None:
            self._subscribers.pop(number, None)

        return leave

    # -- snapshots

    async def snapshot(self) -> Snapshot:
        """Return a snapshot that is at most two seconds old; concurrent callers share one read."""
        if self._last is not None and self._clock.steady() - self._taken_at < FRESH_SECONDS:
            return self._last
        if self._pending is None or self._pending.done():
            self._pending = asyncio.create_task(self._take())
            self._pending.add_done_callback(self._finish_snapshot)
        return await asyncio.shield(self._pending)  # other callers may wait for it, too

    def _finish_snapshot(self, taken: asyncio.Task[Snapshot]) -> None:
        if self._pending is taken:
            self._pending = None
        if taken.cancelled() or taken.exception() is not None:
            return
        self._last, self._taken_at = taken.result(), self._clock.steady()

    async def _take(self) -> Snapshot:
        now = self._clock.now()
        try:
            facts = await self._facts()
            notified = await self._recall_notified(facts)
            if notified.raised or notified.cleared:
                facts = await self._facts()  # no older than the last notification
        except (StoreError, TimeoutError) as error:
            self._alerts = alerts.away(str(error), self._alerts, now=now)
            raise
        self._judge(facts, notified, now)
        return replace(facts, alerts=self.alerts)

    async def _recall_notified(self, facts: Snapshot) -> LastNotified:
        """Return the alerts that hooks were last notified of, maybe by services that are gone."""
        if self._asked_at and self._clock.steady() - self._asked_at < RECALL_SECONDS:
            return LastNotified({}, set())
        notified = await self._notifier.last_notified(
            [*self._shared_alerts(facts), *alerts.OF_ONE_PROCESS]
        )
        self._asked_at = self._clock.steady()
        return notified

    def _judge(self, facts: Snapshot, notified: LastNotified, now: float) -> None:
        """Judge from the last notifications, so that all services clear at the same value. An alert
        that has changed since its notification is notified again, as it is."""
        shared = set(self._shared_alerts(facts))
        raised = {name: one for name, one in notified.raised.items() if name in shared}
        ended = (notified.cleared & shared) - raised.keys()
        own = {name: one for name, one in self._alerts.items() if name not in ended}
        self._alerts = alerts.judge(facts, self._limits, {**raised, **own}, now=now)
        wrong = notified.cleared & self._alerts.keys()
        self._notified = {
            **{name: one for name, one in raised.items() if name not in self._alerts},
            **{name: one for name, one in self._notified.items() if name not in wrong},
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
        """Return the error groups whose outage is an alert now, or was notified."""
        return [name for code, name in (*self._alerts, *self._notified) if code in alerts.OF_GROUPS]

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
            outages=await self._outages.poll(store, stats, workers),
        )

    # -- notifications

    async def run(self) -> None:
        """Judge the alerts until cancelled; an outage of the store is an alert, and no end."""
        beside = self._examine_now_and_then(), self._check_now_and_then()
        examining = asyncio.gather(*beside, return_exceptions=True)
        try:
            while True:
                try:
                    await self.tick()
                except Exception:
                    log.exception("could not evaluate the alerts")
                await sleep(self._clock, JUDGE_SECONDS)
        finally:
            await cancel_and_wait(examining)

    async def tick(self) -> None:
        """Take a snapshot, and notify of each alert that has changed."""
        with suppress(StoreError, TimeoutError):  # it has become an alert
            await self.snapshot()
        before, self._notified = self._notified, self._alerts
        for change in alerts.changes(before, self._notified, now=self._clock.now()):
            _log(change)
            self._publish(change)
            self._notifier.note(change)
        await self._notifier.deliver()

    def _publish(self, change: Change) -> None:
        for subscriber in tuple(self._subscribers.values()):
            try:
                subscriber(change)
            except Exception:
                log.exception("a subscriber failed on %s", change.alert.code)

    # -- examinations

    async def _examine_now_and_then(self) -> None:
        rest = EXAMINE_SECONDS * (0.5 + self._app.chance.random())  # not all services at once
        while True:
            await sleep(self._clock, rest)
            began = self._clock.steady()
            await _attempt(self.examine, "could not examine the store", logging.INFO)
            rest = max(EXAMINE_SECONDS, (self._clock.steady() - began) / EXAMINE_SHARE)

    async def _check_now_and_then(self) -> None:
        """Check whether the store is durable: its settings may be changed while it runs."""
        failure = "could not check the settings of the store"
        while True:
            await sleep(self._clock, CHECK_SECONDS)
            await _attempt(self._app.store.admin.checks, failure, logging.WARNING)

    async def examine(self) -> None:
        """Compare all records, and repair nothing."""
        findings = await self._app.store.admin.doctor(fix=False, limit=FINDINGS_LIMIT)
        self._findings = Counter(found.invariant for found in findings if not found.mended)


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
