"""Counts of tasks by status and place, their moves, and the first of each queue."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Awaited, Moves, Stats, late
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import by_name, pairs_of
from holdfast.stores.redis.encoding import stage_timings
from holdfast.stores.redis.encoding.record import readable
from holdfast.stores.redis.partition import Partition

OTHERS = frozenset({"locks", "checkpoints"})  # counted by queue, but not places


async def stats(part: Partition) -> Stats:
    reply = by_name(await part.call(scripts.STATS, *Status))
    by_queue: defaultdict[str, Counter[Place]] = defaultdict(Counter)
    other_counts: Counter[str] = Counter()
    for field, count in _counter_of(reply["counts"]).items():
        queue, _, place = field.rpartition(" ")
        if place in OTHERS:
            other_counts[place] += count
        elif count:
            by_queue[queue][Place(place)] = count
    waiting = [queue for queue, places in by_queue.items() if places[Place.READY] > 0]
    waits = by_name(reply["waits"])
    return Stats(
        by_status=Counter({s: n for s, n in zip(Status, reply["sizes"], strict=True) if n}),
        by_queue=by_queue,
        moves=tuple(_moves(_counter_of(reply["moves"]))),
        refused=_counter_of(reply["refused"]),
        heads=await _heads(part, waiting),
        now=float(reply["now"]),
        checkpoints=max(0, other_counts["checkpoints"]),
        locks=max(0, other_counts["locks"]),
        timings=tuple(stage_timings.timings_of(_counter_of(reply["durations"]))),
        late_seconds=late({kind: float(waits[kind]) if waits[kind] else None for kind in Awaited}),
    )


def _counter_of(reply: Sequence[bytes]) -> Counter[str]:
    return Counter({field.decode(): int(count) for field, count in pairs_of(reply)})


def _moves(counted: Counter[str]) -> Iterator[Moves]:
    """Yield the moves; a field of two words was written before moves had queue and type."""
    for field, count in counted.items():
        before, after, *more = field.split(" ")
        if more[-1:] == ["us"] and len(more) != len(("queue", "type")):
            continue
        queue, type_ = more or ("", "")
        yield Moves(
            before=Status(before),
            after=Status(after),
            count=count,
            dwell_seconds=counted[f"{field} us"] / 1_000_000,
            queue=queue,
            type=type_,
        )


async def _heads(part: Partition, queues: Sequence[str]) -> dict[str, Task]:
    answers = await part.call_in_batches(scripts.FIRST_IN_QUEUE, queues)
    heads = {}
    for queue, answer in zip(queues, answers, strict=True):
        reply = by_name(answer or ())
        task = readable(reply["id"].decode(), reply) if reply else None
        if task is not None:
            heads[queue] = task
    return heads


# -- several partitions


def merge_stats(parts: Sequence[Stats]) -> Stats:
    by_status: Counter[Status] = Counter()
    by_queue: defaultdict[str, Counter[Place]] = defaultdict(Counter)
    refused: Counter[str] = Counter()
    for part in parts:
        by_status.update(part.by_status)
        refused.update(part.refused)
        for queue, places in part.by_queue.items():
            by_queue[queue].update(places)
    return Stats(
        by_status=by_status,
        by_queue=by_queue,
        moves=_merge_moves(move for part in parts for move in part.moves),
        refused=refused,
        heads=_merge_first_tasks(parts),
        now=max(part.now for part in parts),
        checkpoints=sum(part.checkpoints for part in parts),
        locks=sum(part.locks for part in parts),
        timings=stage_timings.merge_timings(timing for part in parts for timing in part.timings),
        late_seconds={
            kind: max(part.late_seconds.get(kind, 0.0) for part in parts)
            for kind in Awaited
            if any(kind in part.late_seconds for part in parts)
        },
    )


def _merge_moves(moves: Iterable[Moves]) -> tuple[Moves, ...]:
    merged: dict[tuple[Status, Status, str, str], Moves] = {}
    for move in moves:
        of = move.before, move.after, move.queue, move.type
        known = merged.setdefault(of, replace(move, count=0, dwell_seconds=0.0))
        merged[of] = replace(
            known,
            count=known.count + move.count,
            dwell_seconds=known.dwell_seconds + move.dwell_seconds,
        )
    return tuple(merged.values())


def _merge_first_tasks(parts: Sequence[Stats]) -> dict[str, Task]:
    """Return the first task of each queue: of several partitions, the one that waited longest."""
    heads: dict[str, Task] = {}
    for part in parts:
        for queue, task in part.heads.items():
            first = heads.setdefault(queue, task)
            if task.status_since < first.status_since:
                heads[queue] = task
    return heads
