"""Counts and timings, and the error groups of suspended tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any

import msgspec

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Awaited, ErrorGroup, Filter, Moves, Stats, Timings, late
from holdfast.stores import codec
from holdfast.stores.sqlite.file.readers import ReadView
from holdfast.stores.sqlite.tasks.records import readable, record_row
from holdfast.stores.sqlite.transaction import StoreClock, Txn
from holdfast.stores.sqlite.views.find import LOOK_LIMIT, TOP, newest

_decode_counts = msgspec.json.Decoder(tuple[int, ...]).decode


def observe(txn: Txn, batch: Sequence[Timings]) -> None:
    for new in batch:
        key = new.type, new.stage, new.outcome
        row = txn.row("timings_of", *key)
        last, seconds = (_decode_counts(row[0]), row[1]) if row else ((), 0.0)
        counts = [a + b for a, b in zip_longest(last, new.counts, fillvalue=0)]
        txn.run("timings_put", *key, codec.encode(counts).decode(), seconds + new.total_seconds)


def stats(view: ReadView, clock: StoreClock) -> Stats:
    by_status: Counter[Status] = Counter()
    by_queue: defaultdict[str, Counter[Place]] = defaultdict(Counter)
    for queue, place, status, count in view.rows("totals_all"):
        by_status[Status(status)] += count
        by_queue[queue][Place(place)] += count
    return Stats(
        by_status=by_status,
        by_queue=by_queue,
        moves=tuple(
            Moves(
                queue=queue,
                type=type,
                before=Status(before),
                after=Status(after),
                count=count,
                dwell_seconds=seconds,
            )
            for queue, type, before, after, count, seconds in view.rows("moves_all")
        ),
        refused=dict(view.rows("refusals_all")),
        heads=_heads(view, [queue for queue, places in by_queue.items() if places[Place.READY]]),
        now=clock.now(),
        checkpoints=view.row("checkpoints_open")[0],
        locks=view.row("locks_held")[0],
        timings=tuple(
            Timings(
                type=type,
                stage=stage,
                outcome=outcome,
                counts=_decode_counts(counts),
                total_seconds=seconds,
            )
            for type, stage, outcome, counts, seconds in view.rows("timings_all")
        ),
        late_seconds=late(_waits(view, clock)),
    )


def _waits(view: ReadView, clock: StoreClock) -> dict[Awaited, float | None]:
    now = clock.now()
    return {
        Awaited.LEASE: _wait(view.row("leases_first"), now),
        Awaited.TASK: _wait(view.row("due_next"), now),
        Awaited.TRIGGER: _sooner(
            _wait(view.row("triggers_first"), clock.wall()),
            _wait(view.row("triggers_first_lease"), now),
        ),
        Awaited.PLAN: _sooner(
            _wait(view.row("plans_first"), now), _wait(view.row("plans_first_lease"), now)
        ),
    }


def _wait(first: Any, now: float) -> float | None:
    """Return the seconds until a row's time, its last column, by the clock of the present start."""
    return None if first is None or first[-1] is None else first[-1] - now


def _sooner(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)


def _heads(view: ReadView, queues: Sequence[str]) -> dict[str, Task]:
    firsts = ((queue, view.row("ready_head", queue)) for queue in queues)
    return {
        queue: task
        for queue, first in firsts
        if first and (task := readable(record_row(first))) is not None
    }


def errors(view: ReadView, limit: int) -> list[ErrorGroup]:
    """Return the largest groups: all are counted in an index, and only these are read."""
    counts = ((error, _count(view, error)) for error in _all_errors(view))
    largest = sorted((-count, error) for error, count in counts if count)
    groups = (_group(view, error, -count) for count, error in largest)
    return list(islice((group for group in groups if group is not None), limit))


def _all_errors(view: ReadView) -> Iterator[str]:
    """Yield each fingerprint, stepping from one to the next past all the tasks between them."""
    row = view.row("error_next", "")
    while row is not None:
        yield row[0]
        row = view.row("error_next", row[0])


def _count(view: ReadView, error: str) -> int:
    return sum(view.row("error_count", error, status)[0] for status in SUSPENDED)


def _group(view: ReadView, error: str, count: int) -> ErrorGroup | None:
    """Return a group with its newest task, or None where none of the newest can be read."""
    where = Filter(statuses=tuple(SUSPENDED), error=error)
    tasks = (readable(row) for row in newest(view, where, TOP, LOOK_LIMIT))
    first = next((task for task in tasks if task is not None), None)
    return None if first is None else ErrorGroup(fingerprint=error, count=count, newest=first)
