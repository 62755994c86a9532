"""The goals, as ratios of figures of one run.

A ratio is the median of its pairs (`pairs.py`). Where the run had no such pairs, the medians of the
tables are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from bench.report.figures import CEILING, OURS, Book, Figure
from bench.report.pairs import FoundPair, find_pairs, median_cpu, median_ratio, what_decides

FEW = 10_000  # tasks in a drain; who is slow has fewer
STORES = ("redis", "sqlite")
LONG, SHORT = 50, 5  # stages of a workflow
# Whoever of these is missing might have been the fastest, so that nothing is said of the goal.
RIVALS = {
    "drain": ("pgqueuer", "repid", "huey"),
    "submit": ("pgqueuer", "repid", "huey"),
    "latency": ("repid", "huey"),
}
ON_REDIS = ("arq", "celery", "dramatiq", "huey", "repid", "saq", "taskiq")
ON_ANY = (*ON_REDIS, "pgqueuer")
# A full run has the first, a quick one the second.
MANY = (1_000_000, 100_000)  # waiting or settled
FEW_TRIGGERS = 1_000
PLANNED = (10_000, 1_000)  # tasks
PAGED = (1_000_000, 50_000)  # settled
PAGE_MS = ANSWER_MS = 50.0  # at most, of 99 in a hundred
ASKED = 2_000  # requests a second, of which so many must come through:
REACHED = 0.99
CLEARLY_AHEAD = 1.1


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two figures of a ratio."""

    who: str
    value: float
    unit: str
    cpu: dict[str, float] = {}  # microseconds for each task, of client and server


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    goal: float | None  # None: it is only told
    then: float | None = None  # the goal after the goal
    value: float | None = None
    ours: Side | None = None
    other: Side | None = None  # whose figure ours is compared with
    decided_by: str = ""  # rate or CPU
    note: str = ""
    judged: bool = True  # False: it is not what the goal is about

    @property
    def met(self) -> bool | None:
        if self.value is None or self.goal is None or not self.judged:
            return None
        return self.value >= self.goal


Pick = Callable[[Book], Ratio]
Pair = tuple[list[Figure], list[Figure]]  # ours, and what it is compared with


def ratios(book: Book) -> list[Ratio]:
    return [pick(book) for pick in _PICKS]


def by_name(found: Sequence[Ratio]) -> dict[str, dict[str, object]]:
    """Return the ratios for the report, by name."""
    return {
        ratio.name: {
            "value": ratio.value,
            "goal": ratio.goal,
            **({"then": ratio.then} if ratio.then else {}),
            "met": ratio.met,
            "ours": _builtins(ratio.ours),
            "other": _builtins(ratio.other),
            "peer": None if ratio.other is None else ratio.other.who,
            "decided_by": ratio.decided_by,
            "note": ratio.note,
        }
        for ratio in found
    }


def _builtins(side: Side | None) -> dict[str, object] | None:
    """Return a side for the report, without the CPU if it is not known."""
    if side is None:
        return None
    found: dict[str, object] = msgspec.to_builtins(side)
    return {name: value for name, value in found.items() if value != {}}


# -- how they are made


def _hardest(empty: Ratio, book: Book, pairs: Sequence[FoundPair]) -> Ratio:
    """Compare ours with the best of the others by the pairs that both ran."""
    pair = min(pairs, key=lambda one: one.value)
    ours, other = pair.ours.figure, pair.other.figure
    return msgspec.structs.replace(
        empty,
        value=pair.value,
        ours=_side(ours, median_cpu(book, ours)),
        other=_side(other, median_cpu(book, other)),
        decided_by=pair.decided_by,
        note="; ".join([pair.note, *ours.notes, *other.notes]),
    )


def _compare(
    empty: Ratio, ours: Sequence[Figure], others: Sequence[Figure], *, less_is_better: bool = False
) -> Ratio:
    """Compare ours with the best of the others."""
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
        decided_by=what_decides(less_is_better=less_is_better),
        note="; ".join([*own.notes, *best.notes]),
    )


def _fastest(
    empty: Ratio,
    ours: Sequence[Figure],
    found: Sequence[Figure],
    *,
    book: Book,
    pairs: Sequence[FoundPair],
    rivals: Sequence[str],
    store: str | None = None,
    less_is_better: bool = False,
) -> Ratio:
    """Ours to the best of the peers at either of their settings; who is missing is named."""
    peers = _peers(found)
    paired = [one for one in pairs if store in (None, one.other.figure.who.store)]
    if paired:
        ratio = _hardest(empty, book, paired)
    else:
        ratio = _compare(empty, ours, peers, less_is_better=less_is_better)
    if ratio.value is None:
        return ratio
    there = {figure.who.engine for figure in peers}
    there |= {one.other.figure.who.engine for one in paired}
    missing = [name for name in (ON_REDIS if store == "redis" else ON_ANY) if name not in there]
    might = [name for name in missing if name in rivals]
    notes = [ratio.note] if ratio.note else []
    notes += _note_faster(paired, peers, less_is_better=less_is_better)
    if missing:
        notes.append(f"not measured: {', '.join(missing)}")
    if might:
        notes.append(f"not judged, for the fastest may be missing ({', '.join(might)})")
    return msgspec.structs.replace(ratio, note="; ".join(notes), judged=not might)


def _note_faster(
    paired: Sequence[FoundPair], peers: Sequence[Figure], *, less_is_better: bool
) -> list[str]:
    """Name a peer of the tables that was clearly ahead of all that ran in pairs."""
    if not paired or not peers:
        return []
    choose = min if less_is_better else max
    best = choose(_median(one.other.figure) for one in paired)
    first = choose(peers, key=_median)
    ahead = best / _median(first) if less_is_better else _median(first) / best
    return [f"{first.who.label} was faster in its table"] if ahead > CLEARLY_AHEAD else []


def _median(figure: Figure) -> float:
    assert figure.median is not None
    return figure.median


def _side(figure: Figure, cpu: dict[str, float] | None = None) -> Side:
    who = figure.who.label
    if not figure.who.is_ours and figure.who.engine != CEILING:
        who = f"{who}, {figure.who.settings}"
    return Side(who=who, value=_median(figure), unit=figure.unit, cpu=cpu or {})


def _peers(figures: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure.who.engine not in (OURS, CEILING)]


def _drain(book: Book, empty: Ratio, *, store: str | None) -> Ratio:
    found = partial(book.find, "drain", workers=1, tenants=0)
    ours = found(engine=OURS, store="redis", tasks=FEW)
    peers = [one for one in found(store=store, settings=None) if int(one.case["tasks"]) <= FEW]
    pairs = _pairs_with_peers(book, "drain")
    return _fastest(empty, ours, peers, book=book, pairs=pairs, rivals=RIVALS["drain"], store=store)


def _drain_sqlite(book: Book, empty: Ratio) -> Ratio:
    pairs = _pairs_with_peers(book, "drain", store="sqlite")
    if pairs:
        return _hardest(empty, book, pairs)
    found = partial(book.find, "drain", store="sqlite", tasks=FEW, workers=1, tenants=0)
    return _compare(empty, found(engine=OURS), found(engine="huey", settings=None))


def _drain_many(book: Book, empty: Ratio) -> Ratio:
    if pairs := find_pairs(book, "drain of 200,000", store="redis"):
        return _hardest(empty, book, pairs)
    found = partial(book.find, "drain", engine=OURS, store="redis", workers=1, tenants=0)
    return _compare(empty, found(tasks=200_000), found(tasks=10_000))


def _drain_tenants(book: Book, empty: Ratio) -> Ratio:
    if pairs := find_pairs(book, "drain with tenants", store="redis"):
        return _hardest(empty, book, pairs)
    found = partial(book.find, "drain", engine=OURS, store="redis", tasks=10_000, workers=1)
    return _compare(empty, found(tenants=10_000), found(tenants=0))


def _ceiling(book: Book, empty: Ratio, *, store: str) -> Ratio:
    found = find_pairs(book, "drain", store=store)
    pairs = [pair for pair in found if pair.other.figure.who.engine == CEILING]
    if pairs:
        return _hardest(empty, book, pairs)
    return msgspec.structs.replace(empty, note="not measured in this run")


def _submit(book: Book, empty: Ratio, *, how: str) -> Ratio:
    return _fastest(
        empty,
        book.find("submit", how, engine=OURS, store="redis"),
        book.find("submit", how, settings=None),
        book=book,
        pairs=find_pairs(book, "submit", how, store="redis"),
        rivals=RIVALS["submit"],
    )


def _latency(book: Book, empty: Ratio) -> Ratio:
    measure = "start_p50"
    return _fastest(
        empty,
        book.find("latency", measure, engine=OURS, store="redis"),
        book.find("latency", measure, settings=None),
        book=book,
        pairs=find_pairs(book, "latency", measure, store="redis", less_is_better=True),
        rivals=RIVALS["latency"],
        less_is_better=True,
    )


def _pairs_with_peers(book: Book, what: str, *, store: str = "redis") -> list[FoundPair]:
    found = find_pairs(book, what, store=store)
    return [pair for pair in found if pair.other.figure.who.engine not in (OURS, CEILING)]


def _stages(book: Book, empty: Ratio, *, ours: str, dbos: str, at_once: int) -> Ratio:
    found = partial(book.find, "stages", at_once=at_once)
    own = found(engine=OURS, store=ours, stages=SHORT)
    peers = found(engine="dbos", store=dbos, stages=SHORT, settings=None)
    what = "stages one by one" if at_once == 1 else "stages"
    pairs = find_pairs(book, what, store=ours)
    ratio = _hardest(empty, book, pairs) if pairs else _compare(empty, own, peers)
    long = found(engine=OURS, store=ours, stages=LONG)
    if ratio.value is None or not long or not own:
        return ratio
    share = _median(long[0]) / _median(own[0])
    note = f"{LONG} stages against {SHORT}: {share:.2f} of the rate"
    return msgspec.structs.replace(ratio, note="; ".join(filter(None, (ratio.note, note))))


def _growth(book: Book, empty: Ratio, *, what: str) -> Ratio:
    """Compare each size with the small store that was measured in the same minutes."""

    def pair(store: str, size: int) -> Pair:
        case: dict[str, Any] = {what: size}
        rate, beside = (
            book.find("growth", measure, engine=OURS, store=store, **case)
            for measure in ("rate", "beside")
        )
        return rate, beside

    return _worse(empty, MANY, pair)


def _triggers(book: Book, empty: Ratio, *, measure: str) -> Ratio:
    def pair(store: str, size: int) -> Pair:
        found = partial(book.find, "triggers", measure, engine=OURS, store=store)
        return found(waiting=size), found(waiting=FEW_TRIGGERS)

    return _worse(empty, MANY, pair)


def _plans(book: Book, empty: Ratio, *, slots: int) -> Ratio:
    def pair(store: str, size: int) -> Pair:
        rate, plain = (
            book.find("plans", measure, engine=OURS, store=store, tasks=size, max_concurrency=slots)
            for measure in ("rate", "plain")
        )
        return rate, plain

    return _worse(empty, PLANNED, pair)


def _pages(book: Book, empty: Ratio, *, store: str) -> Ratio:
    """Compare the slowest kind of page with the bound."""
    for size in PAGED:
        found = book.find("pages", "p99", engine=OURS, store=store, settled=size)
        if found:
            slowest = max(found, key=_median)
            note = f"the slowest of {len(found)} kinds: {slowest.case['page']}"
            if size != PAGED[0]:
                note += f"; not judged, for it had {size:,} only"
            return _within(empty, slowest, PAGE_MS, note, judged=size == PAGED[0])
    return msgspec.structs.replace(empty, note="not measured in this run")


def _service(book: Book, empty: Ratio) -> Ratio:
    found = partial(book.find, "service", engine=OURS, rate=ASKED, batch=1, workers=0)
    slow, reached = found("p99"), found("reached")
    if not slow or not reached:
        return msgspec.structs.replace(empty, note="not measured in this run")
    note = f"{_median(reached[0]):,.0f} of {ASKED:,} requests/s came through"
    kept_up = _median(reached[0]) >= REACHED * ASKED
    ratio = _within(empty, slow[0], ANSWER_MS, note)
    return ratio if kept_up else msgspec.structs.replace(ratio, value=0.0)


def _within(empty: Ratio, own: Figure, most: float, note: str, *, judged: bool = True) -> Ratio:
    """Compare ours with a bound."""
    other = Side(who="the bound", value=most, unit=own.unit)
    value = most / _median(own)
    return msgspec.structs.replace(
        empty, value=value, ours=_side(own), other=other, note=note, judged=judged
    )


def _worse(empty: Ratio, sizes: Sequence[int], pair: Callable[[str, int], Pair]) -> Ratio:
    """Return the worse of the two stores."""
    found, whole = [], 0
    for store in STORES:
        for size in sizes:
            many, few = pair(store, size)
            if many and few:
                note = f"on {store}, with {size:,}"
                found.append(msgspec.structs.replace(_in_turn(empty, many, few), note=note))
                whole += size == sizes[0]
                break
    if not found:
        return msgspec.structs.replace(empty, note="not measured in this run")
    worst = min(found, key=lambda ratio: ratio.value or 0.0)
    of = "the worse of the stores" if len(found) > 1 else "the only store that was measured"
    if judged := whole == len(STORES):
        note = f"{worst.note}: {of}"
    else:
        note = f"{worst.note}: {of}; not judged, for not both stores had {sizes[0]:,}"
    return msgspec.structs.replace(worst, note=note, judged=judged)


def _in_turn(empty: Ratio, many: list[Figure], few: list[Figure]) -> Ratio:
    """Compare round by round what was measured in turn."""
    value = median_ratio(many[0].values, few[0].values)
    return msgspec.structs.replace(_compare(empty, many, few), value=value)


def _pick(
    make: Callable[..., Ratio],
    name: str,
    goal: float | None,
    then: float | None = None,
    **more: object,
) -> Pick:
    return lambda book: make(book, Ratio(name=name, goal=goal, then=then), **more)


_PICKS: tuple[Pick, ...] = (
    _pick(_drain, "drain_redis_vs_fastest_redis_peer", 3, 5, store="redis"),
    _pick(_drain, "drain_redis_vs_fastest_peer", 1.5, store=None),
    _pick(_drain_many, "drain_redis_200k_vs_10k", 0.9),
    _pick(_ceiling, "drain_redis_vs_ceiling", 0.25, store="redis"),
    _pick(_ceiling, "drain_sqlite_vs_ceiling", None, store="sqlite"),
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
    _pick(_triggers, "find_due_1m_vs_1k", 0.83, measure="find_due"),
    _pick(_triggers, "find_due_with_lease_1m_vs_1k", 0.83, measure="with_lease"),
    _pick(_plans, "plan_10k_vs_plain", None, slots=0),
    _pick(_plans, "plan_10k_100_slots_vs_plain", None, slots=100),
    _pick(_pages, "page_p99_redis_50_ms", 1, store="redis"),
    _pick(_pages, "page_p99_sqlite_50_ms", 1, store="sqlite"),
    _pick(_service, "service_p99_50_ms_at_2000", 1),
)  # fmt: skip
