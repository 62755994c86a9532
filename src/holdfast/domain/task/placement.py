"""The second state machine: the place that each accepted task is in, as a table.

The status says how far a task has come; the place says who may take it next. A task is in
exactly one place. Stores keep the place; decisions name only the ``Next`` that follows.

- A submit puts a task into HELD when a plan must release it first; any other task enters at once.
- A task enters by going to READY, or to LINE when its tenant's line is closed. The line is open
  while the tenant has no active task, and while the active task rests (``opens_line``).
- The task that enters READY becomes its tenant's active task. Only the active task is ever in
  READY or LEASED, so one task at a time runs for a tenant.
- A task waits in READY, LINE and LATER: these count as the depth of its queue.
- A task rests in LATER and PARKED. While it rests, younger tasks of its tenant pass it, unless it
  was submitted with ``hold``.
- A lease exists in LEASED and nowhere else. Every way out of LEASED ends the lease.
- A task that reaches SETTLED frees its tenant's line for good.

Stores move tasks by three moves of their own (``START``, ``DUE``, ``LOSE``), which change the
status and the place together. Lua and SQL take the sets below as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from holdfast.domain.task.state import SETTLED, SUSPENDED, TABLE, Command, Status


class Place(StrEnum):
    """The place of a task."""

    HELD = "held"  # accepted, not released
    READY = "ready"  # in its queue
    LINE = "line"  # behind its tenant's active task
    LATER = "later"  # due at a time
    LEASED = "leased"  # a worker has it
    PARKED = "parked"  # waits for a person
    SETTLED = "settled"


class Next(StrEnum):
    """The place to which a transition sends its task."""

    STAY = "stay"  # where it is; the only choice for a writer without the lease
    READY = "ready"  # enters: to its queue, or behind its tenant's active task
    LATER = "later"  # to its queue after ``delay_seconds``
    PARKED = "parked"
    SETTLED = "settled"
    GONE = "gone"  # settled and not kept: only a tombstone stays


class StoreMove(msgspec.Struct, frozen=True, kw_only=True):
    """A move that the store makes over a set of tasks, and its event."""

    to: Mapping[Status, Status]
    event: str
    leaves: Place
    enters: Place  # READY stands for LINE, too, where the tenant's line is closed


def _store_move(command: Command, event: str, leaves: Place, enters: Place) -> StoreMove:
    to = {status: row[command] for status, row in TABLE.items() if command in row}
    return StoreMove(to=to, event=event, leaves=leaves, enters=enters)


P = Place

START = _store_move(Command.START, "TaskStarted", P.READY, P.LEASED)
DUE = _store_move(Command.DUE, "TaskDue", P.LATER, P.READY)
LOSE = _store_move(Command.LOSE, "LeaseLost", P.LEASED, P.READY)

# The table: the statuses that a task may have in each place. Any other would be stuck there.
STATUSES_IN: Mapping[Place, frozenset[Status]] = {
    P.HELD: frozenset({Status.CREATED}),
    P.READY: frozenset(START.to),
    P.LINE: frozenset(START.to),
    P.LATER: frozenset(DUE.to),
    P.LEASED: frozenset(LOSE.to),
    P.PARKED: SUSPENDED | {Status.PAUSED},
    P.SETTLED: SETTLED,
}

# The place that each ``Next`` leads to. READY may become LINE; STAY leads nowhere.
PLACE_AFTER: Mapping[Next, Place] = {
    Next.READY: P.READY,
    Next.LATER: P.LATER,
    Next.PARKED: P.PARKED,
    Next.SETTLED: P.SETTLED,
    Next.GONE: P.SETTLED,
}

WAITING = frozenset({P.READY, P.LINE, P.LATER})  # counts as the depth of the queue
RUNNABLE = WAITING | {P.LEASED}  # the task goes on without a person
RESTING = frozenset({P.LATER, P.PARKED})  # opens its tenant's line, unless submitted with hold
ACTIVE = frozenset({P.READY, P.LEASED})  # only the tenant's active task is here
STOPPED = frozenset({P.PARKED, P.SETTLED})  # its run is over, unless a person acts


def fits(status: Status, place: Place) -> bool:
    """Return whether a task of this status may be in this place."""
    return status in STATUSES_IN[place]


def opens_line(place: Place, hold: bool) -> bool:
    """Return whether a tenant's line is open while its active task is in this place."""
    return place in RESTING and not hold
