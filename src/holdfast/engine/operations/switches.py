"""Switches that stop a queue, a worker or a tenant, and the sentences that say so.

The store itself refuses what a switch forbids, in the step that it forbids.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.domain import bulk, names, notification
from holdfast.domain.audit import Audit
from holdfast.domain.errors import InvalidInput, WorkerNotFound
from holdfast.domain.phrases import span
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.task import By
from holdfast.ports import Store, Switch, SwitchSetting
from holdfast.ports.switches import FREE, HELD

ON, OFF, WORKING, DRAINING = "on", "off", "working", "draining"  # as the audit has them


async def active_switches(store: Store, now: float) -> list[SwitchSetting]:
    """Return what is switched off now; a hold that is over may still be stored."""
    return [setting for setting in await store.admin.switches() if setting.stands(now)]


async def intake_is_paused(store: Store, queues: Collection[str]) -> str | None:
    """Return one of these queues whose intake is paused; None if there is none."""
    for setting in await store.admin.switches():
        if setting.switch is Switch.INTAKE and setting.name in queues:
            return setting.name
    return None


async def turn_queue(
    store: Store, switch: Switch, queue: str, *, on: bool, by: By, now: float
) -> bool:
    """Pause or resume a queue's intake or claiming; False: it was so already."""
    queue = names.check("queue", queue)
    if queue == bulk.QUEUE:
        raise InvalidInput(f"queue {queue!r} is the engine's own: without it no bulk action runs")
    if queue == notification.QUEUE and switch is Switch.INTAKE and not on:
        raise InvalidInput(f"queue {queue!r} receives notifications: pause its claiming")
    command = f"{'resume' if on else 'pause'} {switch}"
    was_on = not await _is_off(store, switch, queue, now)
    entry = _entry(f"queue:{queue}", command, by, now, ((OFF, ON)[was_on], (OFF, ON)[on]))
    return await store.admin.set_switch(switch, queue, on=on, audit=entry)


def format_switch(setting: SwitchSetting, now: float, reason: str) -> str:
    """Return the state of a queue in words: what, since when, by whom, why, and how to undo it.

    ``reason`` is the reason as it may be shown.
    """
    if setting.switch is Switch.HOLD:
        return format_hold(setting, now, reason)
    what, queue = setting.switch, setting.name
    return (
        f"{what} of queue {queue} has been paused {_since(setting, now, reason)}; "
        f"resume: `holdfast queues resume {queue} --{what}` or "
        f"POST /internal/queues/{queue}/{what}/resume"
    )


def format_switch_for_tenant(setting: SwitchSetting, now: float) -> str:
    """Return the state of a queue in words, for readers who may not know who paused it."""
    paused = f"has been paused for {span(now - setting.at)}"
    how = "an operator of all tenants can resume it"
    return f"{setting.switch} of queue {setting.name} {paused}; {how}"


async def turn_tenant(
    store: Store, tenant: str, *, held: bool, by: By, now: float, until: float | None = None
) -> bool:
    """Hold a tenant or release it; False: it was so already."""
    was_held = await _is_off(store, Switch.HOLD, tenant, now)
    states = (FREE, HELD)[was_held], (FREE, HELD)[held]
    entry = _entry(f"tenant:{tenant}", "hold" if held else "release", by, now, states)
    return await store.admin.set_switch(Switch.HOLD, tenant, on=not held, audit=entry, until=until)


def format_hold(hold: SwitchSetting, now: float, reason: str) -> str:
    """Return who holds a tenant, since when, why, until when, and how to release it."""
    end = f", until {iso(hold.until)}" if hold.until is not None else ""
    return (
        f"tenant {hold.name} has been held {_since(hold, now, reason)}{end}; "
        f"release: `holdfast tenants release {hold.name}` or "
        f"POST /internal/tenants/{hold.name}/release"
    )


def _since(setting: SwitchSetting, now: float, reason: str) -> str:
    by, why = setting.by, f" ({reason})" if reason else ""
    place = f" on {by.origin}" if by.origin else ""
    return f"for {span(now - setting.at)} by {by.actor}{place}{why}"


def format_hold_for_tenant(hold: SwitchSetting, now: float) -> str:
    """Return that a tenant is held, for readers who may not know by whom and why."""
    return f"tenant {hold.name} has been held for {span(now - hold.at)}; an operator can release it"


async def draining(store: Store) -> frozenset[str]:
    """Return the workers that were asked to drain."""
    off = await store.admin.switches()
    return frozenset(setting.name for setting in off if setting.switch is Switch.DRAIN)


async def drain_worker(
    store: Store, worker: str, *, by: By, now: float, live_within_seconds: float
) -> bool:
    """Ask a worker to drain; False: it was asked already."""
    known = await store.views.workers(live_within_seconds=live_within_seconds)
    if worker not in {worker_info.beat.worker for worker_info in known}:
        raise WorkerNotFound(worker)
    before = DRAINING if await _is_off(store, Switch.DRAIN, worker, now) else WORKING
    entry = _entry(f"worker:{worker}", "drain", by, now, (before, DRAINING))
    return await store.admin.set_switch(Switch.DRAIN, worker, on=False, audit=entry)


async def _is_off(store: Store, switch: Switch, name: str, now: float) -> bool:
    return any(
        (setting.switch, setting.name) == (switch, name)
        for setting in await active_switches(store, now)
    )


def _entry(about: str, command: str, by: By, now: float, states: tuple[str, str]) -> Audit:
    names.check_text("reason", by.reason)
    before, after = states
    return Audit(task_id=about, command=command, by=by, at=now, before=before, after=after)
