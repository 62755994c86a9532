"""The comparison of the answers of two stores that got the same calls.

The memory store is the model. Another store may be right and still answer differently in these
points, and in no others:

- Lease ids are random.
- Fences only have to rise: Redis takes them from the time, so that they rise after a loss, too.
- The precision of times depends on the store; Redis keeps microseconds.
- The place and order of a settled record may be those from before it settled.
- Counts of zero may be left out; workers, switches and equal error groups may be in any order.
- The number of checkpoints may be counted from the stages that the records name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, MovedOn, NoCheckpoint, Stale
from holdfast.ports import Claimed, ErrorGroup, Page, Stats, SwitchSetting, WorkerInfo

MICROSECONDS = 5e-6  # two roundings of two numbers
IN_SUMS = 1e-3  # a few hundred of them added up
NO_LEASE = "none"


class Pairing:
    """The pairs of leases and fences: which of the model is which of the other store."""

    def __init__(self) -> None:
        self._leases: dict[str, str] = {}
        self._fences: dict[int, int] = {0: 0}  # of the other, and the model's
        self._fences_of: dict[int, int] = {}

    def learn(self, model: Sequence[Claimed], other: Sequence[Claimed]) -> None:
        """Learn the pairs from what was handed out; a fence that does not rise stays unknown."""
        for ours, theirs in zip(model, other, strict=False):
            if ours.task.lease is None or theirs.task.lease is None:
                continue
            if theirs.task.fence > max(self._fences):
                self._fences[theirs.task.fence] = ours.task.fence
                self._fences_of[ours.task.fence] = theirs.task.fence
            self._leases.setdefault(ours.task.lease.id, theirs.task.lease.id)

    def lease_of(self, model: str) -> str:
        return self._leases.get(model, NO_LEASE)

    def fence_of(self, model: int) -> int:
        return self._fences_of.get(model, model)

    def difference(self, model: Any, other: Any) -> str | None:
        """Return the first difference as text, or None."""
        if model == other:
            return None
        ours, theirs = plain(model), plain(other)
        return next(_differences(ours, self._in_terms_of_model(theirs), ""), None)

    def _in_terms_of_model(self, seen: Any) -> Any:
        match seen:
            case list():
                return [self._in_terms_of_model(item) for item in seen]
            case dict():
                return {name: self._fact(name, value) for name, value in seen.items()}
            case _:
                return seen

    def _fact(self, name: str, value: Any) -> Any:
        if name == "fence":
            return self._fences.get(value, f"unknown fence {value}")
        return self._in_terms_of_model(value)


def plain(answer: Any) -> Any:
    """Return the answer as lists, dicts and texts, without its random parts."""
    match answer:
        case Exception():
            seen: Any = type(answer).__name__
        case Applied(task) | MovedOn(task) | NoCheckpoint(task):
            seen = [type(answer).__name__, plain(_essence(task))]
        case Stale(task):
            seen = ["Stale", plain(task)]
        case Page():
            seen = [plain(answer.tasks), answer.cursor]
        case Stats():
            seen = _counts(answer)
        case [WorkerInfo(), *_]:
            seen = [
                _to_builtins(info) for info in sorted(answer, key=lambda info: info.beat.worker)
            ]
        case [SwitchSetting(), *_]:
            seen = [
                _to_builtins(one) for one in sorted(answer, key=lambda one: (one.switch, one.name))
            ]
        case [ErrorGroup(), *_]:
            order = sorted(answer, key=lambda group: (-group.count, group.fingerprint))
            seen = [_to_builtins(group) for group in order]
        case list() | tuple():
            seen = [plain(item) for item in answer]
        case _:
            seen = [type(answer).__name__, _to_builtins(answer)]
    return seen


def _to_builtins(answer: Any) -> Any:
    return _without_lease_ids(msgspec.to_builtins(answer, builtin_types=(bytes,)))


def _without_lease_ids(seen: Any) -> Any:
    """Return the value without the ids of leases."""
    match seen:
        case {"lease": {"id": _}}:
            return {name: _without_lease_ids(value) for name, value in seen.items()} | {
                "lease": seen["lease"] | {"id": ""}
            }
        case dict():
            return {name: _without_lease_ids(value) for name, value in seen.items()}
        case list() | tuple():
            return [_without_lease_ids(item) for item in seen]
        case _:
            return seen


def _essence(task: Task) -> Task:
    if not task.settled:
        return task
    return msgspec.structs.replace(task, lease=None, place="settled", order=0)


def _counts(stats: Stats) -> Any:
    return {
        "by_status": {str(status): n for status, n in stats.by_status.items() if n},
        "by_queue": {
            f"{queue} {place}": n
            for queue, places in stats.by_queue.items()
            for place, n in places.items()
            if n
        },
        "moves": {
            f"{m.before} {m.after} {m.queue} {m.type}": [m.count, m.dwell_seconds]
            for m in stats.moves
        },
        "timings": {
            f"{t.type} {t.stage} {t.outcome}": [list(t.counts), t.total_seconds]
            for t in stats.timings
        },
        "locks": stats.locks,
        "refused": {name: n for name, n in stats.refused.items() if n},
        "heads": {queue: task.id for queue, task in stats.heads.items()},
    }


def _differences(model: Any, other: Any, path: str) -> Iterator[str]:
    match model, other:
        case dict(), dict():
            for name in dict.fromkeys([*model, *other]):
                yield from _differences(model.get(name), other.get(name), f"{path}.{name}")
        case list(), list():
            for at, (ours, theirs) in enumerate(zip(model, other, strict=False)):
                yield from _differences(ours, theirs, f"{path}[{at}]")
            if len(model) != len(other):
                yield f"at {path or 'all'}: {len(model)} and {len(other)} elements"
        case float(), float() if abs(model - other) <= _fineness(path):
            return
        case _:
            if model != other:
                yield f"at {path or 'all'}: {model!r} and {other!r}"


def _fineness(path: str) -> float:
    return IN_SUMS if path.startswith((".moves", ".timings")) else MICROSECONDS
