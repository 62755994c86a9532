"""Coverage of a range of seeds: a fault or a status that never occurs is not tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.domain.plan import events
from holdfast.domain.plan import plan as plans
from holdfast.domain.plan.plan import PlanStatus
from holdfast.domain.task import events as ev
from holdfast.domain.task.state import Command, Status
from holdfast.domain.trigger import trigger as triggers
from holdfast.domain.trigger.trigger import Misfire, Overlap, TriggerStatus
from verify.faults import Fault

ENOUGH_SEEDS = 2_000  # below that, chance leaves rare ends out, such as a plan PARTIAL_FAILED

STAGE_TROUBLES = (
    "error",
    "permanent",
    "later",
    "snooze",
    "outage",
    "slow",
    "hang",
    "stubborn",
    "own cancel",
    "kill",
)
ASKED = (
    Command.PAUSE,
    Command.RESUME,
    Command.CANCEL,
    Command.RETRY,
    Command.ROLLBACK,
    Command.DISCARD,
)
UNMET_EVENTS = {"TaskProgress"}  # no step of the record
UNMET_EVENTS |= {"TaskAmended", "CheckpointPut", "CheckpointRemoved"}  # the contract's
OF_HELD = {"TaskReleased", "TaskHeldBack"}  # only plans submit held tasks

ALSO = (
    "answer Stale",
    "answer MovedOn",
    "answer Existing",
    "answer Conflict",
    "answer Full",
    "claim repeated",
    "write repeated",
    "decided anew",
    "zombie refused",
    "zombie thread",
    "gone at once",
    "pruned",
    "key repeated",
    "refused illegal-transition",
    "refused tenant-moved-on",
    "result Made",
    "suspended poison",
    "suspended unknown-type",
    "suspended tenant-moved-on",
    "suspended timeout",
    "suspended definition-changed",
    "deploy",
    "suspended outage",
    "hold",
    "release",
    "hold over",
    "given back for a hold",
)
OF_TRIGGERS = (
    "taken over",
    "zombie refused",
    "decided anew",
    "write repeated",
    "put off",
    "without room",
    "redefined",
    "dropped",
    *(f"misfire {policy}" for policy in Misfire),
    *(f"overlapped {policy}" for policy in Overlap if policy is not Overlap.ALLOW),
    *(f"asked {command}" for command in sorted(triggers.ASKED)),
    *TriggerStatus,
)
OF_PLANS = (
    "taken over",
    "zombie refused",
    "decided anew",
    "write repeated",
    "created again",
    "task by hand",
    *(f"event {name}" for name in events.KINDS if name != "PlanCreated"),
    *(f"asked {command}" for command in sorted(plans.ASKED)),
    *(f"status {status}" for status in PlanStatus),
)
TASK_VERBS = ("tasks.claim", "tasks.apply", "tasks.insert", "tasks.renew")
TIMED_VERBS = ("triggers.apply", "triggers.claim", "plans.apply", "plans.claim")


def names_to_meet() -> Iterator[str]:
    yield from of_tasks()
    yield from of_triggers_and_plans()


def of_tasks() -> Iterator[str]:
    yield from (f"status {status}" for status in Status if status is not Status.CREATED)
    yield from (f"event {name}" for name in ev.KINDS if name not in UNMET_EVENTS | OF_HELD)
    yield from (f"asked {command}" for command in ASKED)
    yield from (f"fault {fault}" for fault in Fault)
    yield from (f"fault {name}" for name in ("crash", "stop", "drain", "jump", "hang"))
    yield from (f"stage {trouble}" for trouble in STAGE_TROUBLES)
    yield from (f"{Fault.LOST_REPLY} of {verb}" for verb in TASK_VERBS)
    yield from (f"{Fault.CRASH_AFTER} of {verb}" for verb in TASK_VERBS[:2])
    yield from ALSO


def of_triggers_and_plans() -> Iterator[str]:
    yield from (f"event {name}" for name in sorted(OF_HELD))
    yield from (f"{Fault.LOST_REPLY} of {verb}" for verb in TIMED_VERBS)
    yield from (f"trigger {name}" for name in OF_TRIGGERS)
    yield from (f"plan {name}" for name in OF_PLANS)
    yield from ("answer Busy", "refused tenants-busy", "fault reset")


def missing(counts: Counter[str], names: Iterable[str] | None = None) -> list[str]:
    return [name for name in names or names_to_meet() if not counts[name]]
