"""Our goals, as ratios of figures of one run. Where there are runs, their medians are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from bench.harness.figures import FLOOR, OURS, Book, Figure

MANY = (1_000_000, 100_000)  # waiting or settled: a full run has the first, a quick one the second


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two figures."""

    who: str
    value: float
    unit: str


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    goal: float
    then: float | None = None  # the goal after the goal
    value: float | None = None
    ours: Side | None = None
    other: Side | None = None  # whose figure ours is compared with
    note: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.value >= self.goal


Pick = Callable[[Book], Ratio]


def ratios(book: Book) -> list[Ratio]:
    return [pick(book) for pick in _PICKS]


def told(found: Sequence[Ratio]) -> dict[str, dict[str, object]]:
    """For the report: by name."""
    return {
        ratio.name: {
            "value": ratio.value,
            "goal": ratio.goal,
            **({"then": ratio.then} if ratio.then else {}),
            "met": ratio.met,
            "ours": None if ratio.ours is None else msgspec.to_builtins(ratio.ours),
            "other": None if ratio.other is None else msgspec.to_builtins(ratio.other),
            "peer": None if ratio.other is None else ratio.other.who,
            "note": ratio.note,
        }
        for ratio in found
    }


# -- how they are made


def _compared(
    empty: Ratio, ours: Sequence[Figure], others: Sequence[Figure], *, less_is_better: bool = False
) -> Ratio:
    """Ours to the best of the others."""
    if not ours or not others:
        return msgspec.structs.replace(empty, note="not measured in this run")
    choose = min if less_is_better else max
    own, best = choose(ours, key=_median), choose(others, key=_median)
    value = _median(own) / _median(best)
    return msgspec.structs.replace(
        empty,
        value=1 / value if less_is_better else value,
        ours=_side(own),
        other=_side(best),
        note="; ".join([*own.notes, *best.notes]) if best.who.engine != FLOOR else "",
    )


def _median(figure: Figure) -> float:
    assert figure.median is not None
    return figure.median


def _side(figure: Figure) -> Side:
    who = figure.who.label
    if not figure.who.is_ours and figure.who.engine != FLOOR:
        who = f"{who}, {figure.who.settings}"
    return Side(who=who, value=_median(figure), unit=figure.unit)


def _peers(figures: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure.who.engine not in (OURS, FLOOR)]


def _drain(book: Book, empty: Ratio, *, store: str | None) -> Ratio:
    found = partial(book.find, "drain", tasks=10_000, workers=1, tenants=0)
    return _compared(empty, found(engine=OURS, store="redis"), _peers(found(store=store)))


def _drain_sqlite(book: Book, empty: Ratio) -> Ratio:
    found = partial(book.find, "drain", store="sqlite", tasks=10_000, workers=1, tenants=0)
    return _compared(empty, found(engine=OURS), found(engine="huey"))


def _drain_many(book: Book, empty: Ratio) -> Ratio:
    found = partial(book.find, "drain", engine=OURS, store="redis", workers=1, tenants=0)
    return _compared(empty, found(tasks=200_000), found(tasks=10_000))


def _drain_tenants(book: Book, empty: Ratio) -> Ratio:
    found = partial(book.find, "drain", engine=OURS, store="redis", tasks=10_000, workers=1)
    return _compared(empty, found(tenants=10_000), found(tenants=0))


def _floor(book: Book, empty: Ratio) -> Ratio:
    found = partial(book.find, "floor", "drain", store="redis")
    return _compared(empty, found(engine=OURS), found(engine=FLOOR))


def _submit(book: Book, empty: Ratio, *, how: str) -> Ratio:
    ours = book.find("submit", how, engine=OURS, store="redis")
    return _compared(empty, ours, _peers(book.find("submit", how)))


def _latency(book: Book, empty: Ratio) -> Ratio:
    ours = book.find("latency", "start_p50", engine=OURS, store="redis")
    peers = _peers(book.find("latency", "start_p50"))
    return _compared(empty, ours, peers, less_is_better=True)


def _stages(book: Book, empty: Ratio, *, ours: str, dbos: str, at_once: int) -> Ratio:
    found = partial(book.find, "stages", stages=5, at_once=at_once)
    return _compared(empty, found(engine=OURS, store=ours), found(engine="dbos", store=dbos))


def _growth(book: Book, empty: Ratio, *, what: str) -> Ratio:
    """The worse of the two stores; beside it stands the small store of the same minutes."""
    found = []
    for store in ("redis", "sqlite"):
        for size in MANY:
            many = _of_size(book, "rate", store, what, size)
            few = _of_size(book, "beside", store, what, size)
            if many and few:
                note = f"on {store}, with {size:,}"
                found.append(msgspec.structs.replace(_compared(empty, many, few), note=note))
                break
    if not found:
        return msgspec.structs.replace(empty, note="not measured in this run")
    worst = min(found, key=lambda ratio: ratio.value or 0.0)
    of = "the worse of the stores" if len(found) > 1 else "the only store that was measured"
    return msgspec.structs.replace(worst, note=f"{worst.note}: {of}")


def _of_size(book: Book, measure: str, store: str, what: str, size: int) -> list[Figure]:
    case: dict[str, Any] = {what: size}
    return book.find("growth", measure, engine=OURS, store=store, **case)


def _pick(
    make: Callable[..., Ratio], name: str, goal: float, then: float | None = None, **more: object
) -> Pick:
    return lambda book: make(book, Ratio(name=name, goal=goal, then=then), **more)


_PICKS: tuple[Pick, ...] = (
    _pick(_drain, "drain_redis_vs_fastest_redis_peer", 3, 5, store="redis"),
    _pick(_drain, "drain_redis_vs_fastest_peer", 1.5, store=None),
    _pick(_drain_many, "drain_redis_200k_vs_10k", 0.9),
    _pick(_floor, "drain_redis_vs_floor", 0.5),
    _pick(_drain_sqlite, "drain_sqlite_vs_huey_sqlite", 8),
    _pick(_drain_tenants, "drain_tenants_vs_plain", 0.7),
    _pick(_submit, "submit_one_caller_vs_fastest_peer", 1, how="one"),
    _pick(_submit, "submit_100_callers_vs_fastest_peer", 3, how="many"),
    _pick(_submit, "submit_bulk_vs_fastest_peer", 1.3, how="bulk"),
    _pick(_latency, "latency_p50_fastest_peer_vs_ours", 1),
    _pick(
        _stages, "stages_sqlite_vs_dbos_sqlite", 100, ours="sqlite", dbos="sqlite", at_once=50
    ),
    _pick(
        _stages, "stages_redis_vs_dbos_postgres", 100, ours="redis", dbos="postgres", at_once=50
    ),
    _pick(
        _stages, "stages_one_by_one_vs_dbos_sqlite", 8, ours="sqlite", dbos="sqlite", at_once=1
    ),
    _pick(_growth, "waiting_1m_vs_1k", 0.8, what="waiting"),
    _pick(_growth, "settled_1m_vs_0", 0.8, what="settled"),
)  # fmt: skip
