"""What a range of seeds must have met: a fault or a status that never occurs is not tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.domain import events as ev
from holdfast.domain.state import Command, Status
from holdfast.testing.faults import Fault

ENOUGH_SEEDS = 100  # below that, chance may leave something out

STAGE_TROUBLES = (
    "error",
    "permanent",
    "later",
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
# Nothing in the simulation submits held tasks, and progress is no step of the record.
UNMET_STATUSES = {Status.CREATED}
UNMET_EVENTS = {"TaskReleased", "TaskProgress"}

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
)


def wanted() -> Iterator[str]:
    yield from (f"status {status}" for status in Status if status not in UNMET_STATUSES)
    yield from (f"event {name}" for name in ev.KINDS if name not in UNMET_EVENTS)
    yield from (f"asked {command}" for command in ASKED)
    yield from (f"fault {fault}" for fault in Fault)
    yield from (f"fault {name}" for name in ("crash", "stop", "drain", "jump", "hang"))
    yield from (f"stage {trouble}" for trouble in STAGE_TROUBLES)
    yield from (f"{Fault.LOST_REPLY} of {verb}" for verb in ("claim", "apply", "insert", "renew"))
    yield from (f"{Fault.CRASH_AFTER} of {verb}" for verb in ("claim", "apply"))
    yield from ALSO


def missing(counts: Counter[str]) -> list[str]:
    return [name for name in wanted() if not counts[name]]
