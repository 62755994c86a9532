"""The pairs that the ratios are made of: `python -m bench.questions.pairs`.

A pair is ours and what it is compared with, run back to back, five times; which of the two is first
changes with each run. A run counts only if both sides came to a good end. The peers are those that
one of the other questions has found the fastest, on each kind of store; the ceiling is a fixed case
(`bench/ours/ceiling.py`). Beside each rate stand the CPU of both sides and the machine's load,
which decides whether rates or CPU are compared (`bench/report/pairs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.plan import Part
from bench.questions.drain import FEW, MANY, measure_drain
from bench.questions.latency import measure_latency
from bench.questions.stages import AMOUNTS, StageAmount, measure_stages
from bench.questions.submit import measure_submits
from bench.report.figures import CEILING, Who

NAME = "pairs"
PAIRS = {True: 1, False: 5}  # quick or not
CEILING_TASKS = 50_000  # so that a run lasts long enough to be timed
TENANTS = 10_000
AT_ONCE, ONE_BY_ONE = AMOUNTS[0], AMOUNTS[1]
QUICK = ("drain: repid redis", "drain: ceiling redis")

Measure = Callable[[Bench, Who], CaseResult]


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of both sides of a pair."""

    what: str
    store: str  # of ours
    other: Who
    ours: Measure
    others: Measure
    main: tuple[str, str] = ("rate", "tasks/s")
    about: tuple[float, float] = (4.0, 6.0)  # seconds of ours and of the other

    @property
    def name(self) -> str:
        return f"{self.what}: {self.other.label}"


def parts(bench: Bench) -> list[Part]:
    there = {engine.name for engine in (bench.ours, *bench.peers)}
    there |= {CEILING} if bench.ceiling else set()
    wanted = [one for one in contests() if one.other.engine in there]
    if bench.quick:
        wanted = [one for one in wanted if one.name in QUICK]
    return [Part(question=NAME, what="ratios", cases=[pair(bench, one) for one in wanted])]


def pair(bench: Bench, contest: Contest, *, runs: int | None = None) -> Case:
    """Return our case, with the other's beside it."""
    ours = bench.ours.on(contest.store)
    sides = [
        Case(
            question=NAME,
            who=who,
            case={"pair": contest.name, "side": side},
            run=partial(measure, bench, who),
            runs=runs or PAIRS[bench.quick],
            main=contest.main,
            about=about,
        )
        for side, who, measure, about in zip(
            ("ours", "other"),
            (ours, contest.other),
            (contest.ours, contest.others),
            contest.about,
            strict=True,
        )
    ]
    return msgspec.structs.replace(sides[0], beside=sides[1])


def contests() -> list[Contest]:
    return [*_drains(), *_own_drains(), *_ceilings(), *_submits(), *_latencies(), *_stages()]


def drain_contest(store: str, other: Who, *, tasks: int = FEW, others: int = FEW) -> Contest:
    return Contest(
        what="drain", store=store, other=other, ours=drain_of(tasks), others=drain_of(others)
    )


def ceiling_contest(store: str, *, tasks: int = FEW) -> Contest:
    other = Who(engine=CEILING, store=store)
    return drain_contest(store, other, tasks=tasks, others=CEILING_TASKS)


def drain_of(tasks: int, *, tenants: int = 0) -> Measure:
    return lambda bench, who: measure_drain(bench, who, tasks=tasks, tenants=tenants)


def stages_of(amount: StageAmount) -> Measure:
    return lambda bench, who: measure_stages(bench, who, amount)


def _drains() -> list[Contest]:
    return [
        drain_contest("redis", Who(engine="repid", store="redis")),
        drain_contest("redis", Who(engine="pgqueuer", store="postgres")),
        drain_contest("sqlite", Who(engine="huey", store="sqlite", settings="plain")),
    ]


def _own_drains() -> list[Contest]:
    ours = Who(engine="holdfast", store="redis")
    plain = drain_contest("redis", ours)
    return [
        msgspec.structs.replace(
            plain, what="drain with tenants", ours=drain_of(FEW, tenants=TENANTS)
        ),
        msgspec.structs.replace(
            plain, what=f"drain of {MANY:,}", ours=drain_of(MANY), about=(25.0, 4.0)
        ),
    ]


def _ceilings() -> list[Contest]:
    return [ceiling_contest(store) for store in ("redis", "sqlite")]


def _submits() -> list[Contest]:
    rivals = (
        Who(engine="huey", store="redis", settings="plain"),
        Who(engine="repid", store="redis"),
        Who(engine="pgqueuer", store="postgres"),
    )
    return [
        Contest(
            what="submit",
            store="redis",
            other=rival,
            ours=measure_submits,
            others=measure_submits,
            main=("bulk", "tasks/s"),
            about=(6.0, 6.0),
        )
        for rival in rivals
    ]


def _latencies() -> list[Contest]:
    return [
        Contest(
            what="latency",
            store="redis",
            other=Who(engine=rival, store="redis"),
            ours=measure_latency,
            others=measure_latency,
            main=("start_p50", "ms"),
            about=(3.5, 3.5),
        )
        for rival in ("repid", "huey")
    ]


def _stages() -> list[Contest]:
    sqlite = Who(engine="dbos", store="sqlite")
    postgres = Who(engine="dbos", store="postgres", settings="plain")
    return [
        _stage_contest("stages", "sqlite", sqlite, AT_ONCE),
        _stage_contest("stages", "redis", postgres, AT_ONCE),
        _stage_contest("stages one by one", "sqlite", sqlite, ONE_BY_ONE),
    ]


def _stage_contest(what: str, store: str, other: Who, amount: StageAmount) -> Contest:
    return Contest(
        what=what,
        store=store,
        other=other,
        ours=stages_of(amount),
        others=stages_of(amount),
        main=("rate", "stages/s"),
        about=(3.5, 4.0 + amount.peers * amount.stages / 350),
    )


if __name__ == "__main__":
    ask_alone(NAME)
