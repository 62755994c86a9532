"""The tables about capacity: what a core can do, and how many a load needs, by measured CPU.

A core that uses 50 µs for a task does at most 20 000 tasks a second. Loads are planned with cores
that are busy for a part of the time only, because a full one answers late.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import msgspec

from bench.report.figures import (
    BUSIEST_NODE,
    CLIENT_CPU,
    OURS,
    SERVER_CPU,
    Book,
    Figure,
)
from bench.report.tables import grid, number, table

LOADS = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)  # tasks a second
BUSY = 0.6  # of a core's time, at most
STAGES = 5
MICROSECONDS = 1e6
NOT_MEASURED = ["Not measured in this run."]


class WorkCost(msgspec.Struct, frozen=True, kw_only=True):
    """CPU of a piece of work, in microseconds."""

    what: str
    server: float
    client: float

    def __add__(self, other: WorkCost) -> WorkCost:
        return WorkCost(
            what=f"{self.what} and {other.what}",
            server=self.server + other.server,
            client=self.client + other.client,
        )


def run_facts(report: dict[str, Any]) -> list[str]:
    place = report["machine"]
    said = (
        f"The figures are from {report['taken_at'][:10]}. The machine has {place['cores']} cores "
        f"({place['processor']})."
    )
    return [said]


def cores(rate: float, microseconds: float) -> int:
    """Return the cores that are busy at most so long, at this rate of work."""
    return max(1, math.ceil(rate * microseconds / MICROSECONDS / BUSY))


def load_costs(book: Book) -> dict[str, WorkCost]:
    """Return the cost of each kind of work on Redis that was measured, by name."""
    stages: dict[str, Any] = {"stages": STAGES, "at_once": 50}
    drain: dict[str, Any] = {"tasks": 10_000, "workers": 1, "tenants": 0}
    found = {
        "bulk": _cost(book, "submit", "bulk", "submit in bulk", {}),
        "many": _cost(book, "submit", "many", "submit one by one, 100 callers", {}),
        "one": _cost(book, "submit", "one", "submit one by one, one caller", {}),
        "drain": _cost(book, "drain", "", "claim, run and finish a no-op task", drain),
        "stage": _cost(book, "stages", "", f"a stage of a workflow of {STAGES}", stages),
        "http": _http_cost(book),
    }
    return {name: cost for name, cost in found.items() if cost is not None}


def _cost(book: Book, question: str, how: str, what: str, case: dict[str, Any]) -> WorkCost | None:
    """Return the cost of some work, or nothing if one of its sides is not known."""
    prefix = f"{how}_" if how else ""
    server, client = (
        book.find(question, f"{prefix}{side}", engine=OURS, store="redis", **case)
        for side in (SERVER_CPU, CLIENT_CPU)
    )
    if not server or not client:
        return None
    return WorkCost(what=what, server=_median(server[0]), client=_median(client[0]))


def _http_cost(book: Book) -> WorkCost | None:
    """Return the cost of a request at the rate where the service reached the most."""
    best = _best_service(book)
    if best is None:
        return None
    case: dict[str, Any] = {**best.case}
    server, client = (
        book.find("service", measure, engine=OURS, **case) for measure in ("redis_cpu", "cpu")
    )
    if not server or not client:
        return None
    what = "submit over HTTP, one task in a request"
    return WorkCost(what=what, server=_median(server[0]), client=_median(client[0]))


def _best_service(book: Book) -> Figure | None:
    found = book.find("service", "reached", engine=OURS, batch=1, workers=0)
    return max(found, key=_median, default=None)


def core_table(book: Book) -> list[str]:
    """Return how often one core of Redis and one of ours can do each piece of work."""
    costs = load_costs(book)
    if not costs:
        return NOT_MEASURED
    rows = [
        [
            cost.what,
            number(cost.server),
            number(MICROSECONDS / cost.server),
            number(cost.client),
            number(MICROSECONDS / cost.client),
        ]
        for cost in costs.values()
    ]
    head = ["work", "Redis µs", "a second per Redis core", "our process µs"]
    return grid([*head, "a second per core of our process"], rows)


def load_table(book: Book) -> list[str]:
    """Return the partitions and the worker cores that each load needs."""
    costs = load_costs(book)
    if not {"many", "drain", "stage"} <= costs.keys():
        return NOT_MEASURED
    noop, stage = costs["many"] + costs["drain"], costs["stage"]
    more = partition_overhead(book)
    flow = WorkCost(what="", server=STAGES * stage.server, client=STAGES * stage.client)
    rows = [
        [f"{load:,}", *(str(n) for one in (noop, flow) for n in _needed_cores(one, load, more))]
        for load in LOADS
    ]
    head = ["tasks a second", "no-op: partitions", "no-op: cores of ours"]
    return grid([*head, "five stages: partitions", "five stages: cores of ours"], rows)


def _needed_cores(cost: WorkCost, load: int, overhead: float) -> tuple[int, int]:
    """Return partitions and cores of ours; several partitions have smaller batches."""
    partitions = cores(load, cost.server)
    if partitions > 1:
        partitions = cores(load, cost.server * overhead)
    return partitions, cores(load, cost.client)


def partition_overhead(book: Book) -> float:
    """Return how much more Redis uses for a task with two partitions; 1 if it is not known."""
    found = _busiest_nodes(book)
    return 1.0 if found is None else max(1.0, 2 * found[1] / found[0])


def _busiest_nodes(book: Book) -> tuple[float, float] | None:
    """Return what the busiest node uses for a task, with one partition and with two."""
    one, two = (book.find("capacity", BUSIEST_NODE, engine=OURS, partitions=n) for n in (1, 2))
    return (_median(one[0]), _median(two[0])) if one and two else None


def partition_lines(book: Book) -> list[str]:
    """Return the run with one partition and with two, and what its busiest nodes say."""
    found = _busiest_nodes(book)
    if found is None:
        return NOT_MEASURED
    single, double = found
    said = (
        f"With one partition the node uses {number(single)} µs for a task, from its submit to its "
        f"end. It can do {number(MICROSECONDS / single)} tasks a second. With two partitions the "
        f"busier node uses {number(double)} µs for each task of both. So two nodes can do "
        f"{number(MICROSECONDS / double)} tasks a second, "
        f"{single / double:.2f} times as many as one. "
        f"The overhead is {100 * (2 * double / single - 1):.0f} %."
    )
    return [*table(book, "capacity"), "", said]


def service_lines(book: Book) -> list[str]:
    """Return the most requests that the service answered in a second."""
    best = _best_service(book)
    if best is None:
        return NOT_MEASURED
    offered = max(int(one.case["rate"]) for one in book.find("service", "reached", batch=1))
    said = (
        f"One process of the service answered at most {number(_median(best))} requests a second. "
        f"The highest offer was {offered:,}."
    )
    return [said]


def _median(figure: Figure) -> float:
    return statistics.median(figure.values)
