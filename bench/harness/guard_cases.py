"""The cases of the guard: each kind of work on each store, beside the ceiling or beside repid."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from functools import partial

import msgspec

from bench.harness import processes
from bench.harness.bench import Bench
from bench.harness.paths import PYTHON
from bench.harness.processes import CaseFailed
from bench.questions.drain import FEW
from bench.questions.pairs import (
    Contest,
    ceiling_contest,
    drain_contest,
    pair,
    stages_of,
)
from bench.questions.stages import StageAmount
from bench.questions.submit import measure_bulk
from bench.report.figures import Book, Who
from bench.report.pairs import LOAD_MAX, FoundPair, find_pairs

RUNS = 5  # pairs
COUNT_SECONDS = 120.0
COUNT_RUNS = 2
SUBMITS = 20_000
STAGES = StageAmount(stages=5, at_once=50, ours=1_000, peers=0)
COUNTED = {"redis": ("calls", "commands", "bytes"), "sqlite": ("calls", "rows")}
TIMED = {"redis": ("client_cpu", "server_cpu", "rate"), "sqlite": ("client_cpu", "rate")}
BESIDE_PEER = ("cpu", "rate")


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of work on a store, and what is watched of it."""

    what: str
    store: str
    contest: Contest
    counted: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()


def _beside_ceiling(store: str) -> list[Guarded]:
    drain = ceiling_contest(store)
    submit = msgspec.structs.replace(
        drain, what="submit", ours=partial(measure_bulk, tasks=SUBMITS)
    )
    stages = msgspec.structs.replace(
        drain, what="stages", ours=stages_of(STAGES), main=("rate", "stages/s")
    )
    return [
        Guarded(what=one.what, store=store, contest=one, counted=COUNTED[store], timed=TIMED[store])
        for one in (drain, submit, stages)
    ]


def _beside_repid() -> Guarded:
    repid = drain_contest("redis", Who(engine="repid", store="redis"), tasks=FEW)
    return Guarded(what="drain", store="redis", contest=repid, timed=BESIDE_PEER)


GUARDED = {
    **{
        f"{one.what}_{one.store}": one
        for store in ("redis", "sqlite")
        for one in _beside_ceiling(store)
    },
    "drain_redis_beside_repid": _beside_repid(),
}
NAMES = [
    f"{name}:{aspect}" for name, one in GUARDED.items() for aspect in (*one.counted, *one.timed)
]


def measure_names(bench: Bench, names: Sequence[str]) -> tuple[dict[str, float], set[str]]:
    """Return the values of these names, and which rates were disturbed by other processes."""
    bench.book = Book()
    wanted = [name.partition(":") for name in names]
    values: dict[str, float] = {}
    for thing in dict.fromkeys(name for name, _, aspect in wanted if is_counted(name, aspect)):
        values |= {f"{thing}:{count}": n for count, n in _count(bench, GUARDED[thing]).items()}
    timed = dict.fromkeys(name for name, _, aspect in wanted if not is_counted(name, aspect))
    there = {one.name for one in (*bench.peers, *filter(None, (bench.ceiling,)))}
    things = {name: GUARDED[name] for name in timed if GUARDED[name].contest.other.engine in there}
    bench.measure([pair(bench, one.contest, runs=RUNS) for one in things.values()])
    disturbed: set[str] = set()
    for name, one in things.items():
        for found in pairs_of(bench.book, one):
            values |= {f"{name}:{aspect}": n for aspect, n in values_of(found, one.timed).items()}
            disturbed |= {f"{name}:rate"} if found.load > LOAD_MAX else set()
    return values, disturbed


def is_counted(name: str, aspect: str) -> bool:
    return name in GUARDED and aspect in GUARDED[name].counted


def pairs_of(book: Book, guarded: Guarded) -> list[FoundPair]:
    """Return the pairs of this contest; drains have one beside each of two others."""
    found = find_pairs(book, guarded.what, store=guarded.store)
    return [one for one in found if one.other.figure.who == guarded.contest.other]


def values_of(found: FoundPair, aspects: Sequence[str]) -> dict[str, float]:
    """Return what is watched of a pair: CPU as a multiple of the other's, rates as a share."""
    made = {"rate": found.by_rate}
    if found.by_cpu:
        made["cpu"] = 1 / found.by_cpu
    for name, ours, other in (
        ("client_cpu", found.ours.client, found.other.client),
        ("server_cpu", found.ours.server, found.other.server),
    ):
        if ours and other:
            made[name] = statistics.median(ours) / statistics.median(other)
    return {name: made[name] for name in aspects if name in made}


def _count(bench: Bench, guarded: Guarded) -> dict[str, float]:
    """Return the least of several counts: a busy machine makes batches a little smaller."""
    runs = [_count_once(bench, guarded) for _ in range(COUNT_RUNS)]
    names = {name for run in runs for name in run}
    return {name: min(run[name] for run in runs if name in run) for name in names}


def _count_once(bench: Bench, guarded: Guarded) -> dict[str, float]:
    """Count in a process of its own, where nothing else is profiled."""
    with bench.trial_stores.open(guarded.store) as trial:
        words = [str(PYTHON), "-m", "bench.harness.counts"]
        words += ["--what", guarded.what, "--url", trial.url]
        try:
            found = processes.call(words, seconds=COUNT_SECONDS)
        except CaseFailed as error:
            print(f"  counts of {guarded.what}: {error}", file=sys.stderr, flush=True)
            return {}
    said = ", ".join(f"{name} {number:,.4g}" for name, number in found.items())
    print(f"  counts of {guarded.what} on {guarded.store}: {said}", file=sys.stderr, flush=True)
    return {name: float(number) for name, number in found.items()}
