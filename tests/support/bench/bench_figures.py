"""Canned figures, as a run would bring them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.report.figures import Book, Who


def who(engine: str, store: str, settings: str = "best") -> Who:
    return Who(engine=engine, store=store, settings=settings)


def add(
    book: Book,
    question: str,
    one: Who,
    values: list[float],
    measure: str = "rate",
    **case: int | str,
) -> None:
    book.figure(question, one, case, measure, "tasks/s").values.extend(values)


class Pair(NamedTuple):
    """Both sides of a pair: what it is about, and the values of each side."""

    what: str
    ours: Who
    other: Who
    values: Sequence[float]
    others: Sequence[float]
    measure: str = "rate"


def add_pair(book: Book, pair: Pair, *, load: float = 0.1, cpu: tuple[float, ...] = ()) -> None:
    """Add both sides of a pair; ``cpu`` is what the client of each uses for a task."""
    sides = (("ours", pair.ours, pair.values), ("other", pair.other, pair.others))
    for at, (side, one, values) in enumerate(sides):
        case: dict[str, Any] = {"pair": f"{pair.what}: {pair.other.label}", "side": side}
        add(book, "pairs", one, list(values), pair.measure, **case)
        add(book, "pairs", one, [load] * len(values), "load", **case)
        if cpu:
            prefix = "" if pair.measure == "rate" else f"{pair.measure}_"
            add(book, "pairs", one, [cpu[at]] * len(values), f"{prefix}client_cpu", **case)


def full_book() -> Book:
    """Every figure that a ratio asks for, in round numbers."""
    book = Book()
    ours = who("holdfast", "redis")
    redis: dict[str, Any] = {"tasks": 10_000, "workers": 1, "tenants": 0}
    add(book, "drain", ours, [59.0, 61.0, 60.0], **redis)
    add(book, "drain", ours, [57.0], tasks=200_000, workers=1, tenants=0)
    add(book, "drain", ours, [45.0], tasks=10_000, workers=1, tenants=10_000)
    add(book, "drain", who("holdfast", "sqlite"), [80.0], **redis)
    add(book, "drain", who("repid", "redis"), [20.0], **redis)
    add(book, "drain", who("dramatiq", "redis"), [10.0], **redis)
    add(book, "drain", who("dramatiq", "redis", "plain"), [15.0], **redis)
    add(book, "drain", who("pgqueuer", "postgres"), [40.0], **redis)
    for store in ("redis", "sqlite"):
        add(book, "drain", who("huey", store), [10.0], **redis)
    for slow in ("arq", "celery", "saq", "taskiq"):
        add(book, "drain", who(slow, "redis"), [5.0], tasks=2_000, workers=1, tenants=0)
    add_pair(book, Pair("drain", ours, who("ceiling", "redis"), [60.0], [240.0]))
    for how, rate in (("one", 10.0), ("many", 40.0), ("bulk", 90.0)):
        add(book, "submit", ours, [rate], how)
        add(book, "submit", who("repid", "redis"), [10.0], how)
        add(book, "submit", who("pgqueuer", "postgres"), [rate / 2], how)
        add(book, "submit", who("huey", "redis", "plain"), [9.0], how)
    add(book, "latency", ours, [0.5], "start_p50", samples=200)
    add(book, "latency", who("repid", "redis"), [1.0], "start_p50", samples=200)
    add(book, "latency", who("huey", "redis"), [0.8], "start_p50", samples=200)
    for at_once in (1, 50):
        add(book, "stages", who("holdfast", "sqlite"), [900.0], stages=5, at_once=at_once)
        add(book, "stages", who("dbos", "sqlite"), [9.0], stages=5, at_once=at_once)
    add(book, "stages", ours, [800.0], stages=5, at_once=50)
    add(book, "stages", ours, [760.0], stages=50, at_once=50)
    add(book, "stages", who("dbos", "postgres"), [10.0], stages=5, at_once=50)
    for store, many in (("redis", 90.0), ("sqlite", 70.0)):
        for what in ("waiting", "settled"):
            case: dict[str, Any] = {what: 1_000_000}
            add(book, "growth", who("holdfast", store), [many], **case)
            add(book, "growth", who("holdfast", store), [100.0], "beside", **case)
    for store, share in (("redis", 0.9), ("sqlite", 0.8)):
        one = who("holdfast", store)
        for measure in ("find_due", "with_lease"):
            add(book, "triggers", one, [100.0], measure, waiting=1_000, due=100)
            add(book, "triggers", one, [100.0 * share], measure, waiting=1_000_000, due=100)
        for slots in (100, 0):
            plan: dict[str, Any] = {"tasks": 10_000, "max_concurrency": slots}
            add(book, "plans", one, [40.0 * share], **plan)
            add(book, "plans", one, [80.0], "plain", **plan)
    return book


def full_report() -> dict[str, Any]:
    from bench.report import ratios

    book = full_book()
    return {
        "taken_at": "2030-01-01T00:00:00+00:00",
        "quick": False,
        "full": True,
        "runs": 3,
        "seconds": 60.0,
        "machine": {"system": "Linux", "cores": 2, "processor": "one"},
        "versions": {"python": "3", "redis": "7", "postgresql": None, "sqlite": "3"},
        "servers": {"redis": "everysec", "postgresql": "", "sqlite": ""},
        "engines": {"holdfast": {"version": "1", "settings": {"best": "a | b"}}},
        "absent": {"celery": "it could not be installed"},
        "ratios": ratios.by_name(ratios.ratios(book)),
        "figures": [figure.to_dict() for figure in book],
    }
