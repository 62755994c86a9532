"""Two stores were told the same: are their answers the same?

The memory store is the model. Another store may be right and still answer otherwise in these
points, and in no others:

- Lease ids are random.
- Fences only have to rise: Redis takes them from the time, so that they rise after a loss, too.
- Times are as fine as a store tells them; Redis keeps microseconds.
- A record that has settled may be answered as it was decided: its place and order are history.
- Counts of nothing may be told or left out; workers, switches and equal groups of errors may be in
  any order.
- How many checkpoints there are may be told by what the records say of their stages.
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
        """The first, in words."""
        if model == other:
            return None
        ours, theirs = plain(model), plain(other)
        return next(_differences(ours, self._as_the_model_has_it(theirs), ""), None)

    def _as_the_model_has_it(self, seen: Any) -> Any:
        match seen:
            case list():
                return [self._as_the_model_has_it(item) for item in seen]
            case dict():
                return {name: self._fact(name, value) for name, value in seen.items()}
            case _:
                return seen

    def _fact(self, name: str, value: Any) -> Any:
        if name == "fence":
            return self._fences.get(value, f"unknown fence {value}")
        return self._as_the_model_has_it(value)


def plain(answer: Any) -> Any:
    """The answer as lists, dicts and texts, without what is random in it."""
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
            seen = [_built(info) for info in sorted(answer, key=lambda info: info.beat.worker)]
        case [SwitchSetting(), *_]:
            seen = [_built(one) for one in sorted(answer, key=lambda one: (one.switch, one.name))]
        case [ErrorGroup(), *_]:
            order = sorted(answer, key=lambda group: (-group.count, group.fingerprint))
            seen = [_built(group) for group in order]
        case list() | tuple():
            seen = [plain(item) for item in answer]
        case _:
            seen = [type(answer).__name__, _built(answer)]
    return seen


def _built(answer: Any) -> Any:
    return _nameless(msgspec.to_builtins(answer, builtin_types=(bytes,)))


def _nameless(seen: Any) -> Any:
    """Return the value without the ids of leases."""
    match seen:
        case {"lease": {"id": _}}:
            return {name: _nameless(value) for name, value in seen.items()} | {
                "lease": seen["lease"] | {"id": ""}
            }
        case dict():
            return {name: _nameless(value) for name, value in seen.items()}
        case list() | tuple():
            return [_nameless(item) for item in seen]
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
