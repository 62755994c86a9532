"""The rate at which submits are answered: `python -m bench.questions.submit`.

Tasks are submitted by one caller who awaits each answer, by a hundred at the same time who each
await their own, and by the quickest call that there is for many. No worker runs meanwhile. Making
the connection is not counted. Quick engines submit more, so that each run takes most of a second.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.cpu import CpuReading, per_task
from bench.harness.plan import Part
from bench.report.figures import Who

NAME = "submit"
CALLERS = 100
PROBED = 100
LEAST, MOST = 100, {"one": 5_000, "many": 20_000, "bulk": 50_000}
ABOUT_SECONDS = 0.7
SLOW = ("dbos", "absurd", "celery")  # in no way the fastest: one run
LIMIT_SECONDS = 30.0


def parts(bench: Bench) -> list[Part]:
    plain = [] if bench.quick else bench.whos("submit", "best", "plain")
    plain = [who for who in plain if who.settings == "plain"]
    return [
        Part(
            question=NAME,
            what="best",
            cases=[_case(bench, w) for w in bench.whos("submit", "best")],
        ),
        Part(question=NAME, what="plain", cases=[_case(bench, w) for w in plain], needed=False),
    ]


def _case(bench: Bench, who: Who) -> Case:
    once = who.engine in SLOW or who.settings == "plain"
    return Case(
        question=NAME,
        who=who,
        case={},
        run=partial(measure_submits, bench, who),
        runs=1 if once else None,
        main=("bulk", "tasks/s"),
        about=6.0,
    )


def measure_submits(bench: Bench, who: Who) -> CaseResult:
    """Measure each way to submit; its rate gives the amount for the next, which is no slower."""
    known = {how: _known_rate(bench, who, how) for how in MOST}
    rate, values = known["one"] or _submit(bench, who, "one", PROBED).rate, {}
    for how, most in MOST.items():
        rate = known[how] or rate
        tasks = int(min(most, max(LEAST, rate * ABOUT_SECONDS)))
        found = _submit(bench, who, how, tasks)
        if tasks < most and tasks / found.rate < ABOUT_SECONDS / 3:  # quicker than the way before
            found = _submit(bench, who, how, int(min(most, found.rate * ABOUT_SECONDS)))
        rate = found.rate
        values[how] = (rate, "tasks/s")
        values |= {f"{how}_{side}": used for side, used in found.cpu.items()}
    return CaseResult(values=values)


def measure_bulk(bench: Bench, who: Who, *, tasks: int) -> CaseResult:
    """Measure the quickest call for many alone."""
    found = _submit(bench, who, "bulk", tasks)
    return CaseResult(values={"rate": (found.rate, "tasks/s"), **found.cpu})


def _known_rate(bench: Bench, who: Who, how: str) -> float | None:
    """Return the rate of an earlier run, if there was one."""
    found = bench.book.find(NAME, how, engine=who.engine, store=who.store, settings=who.settings)
    return found[0].median if found else None


class Submitted(NamedTuple):
    rate: float
    cpu: dict[str, tuple[float, str]]


def _submit(bench: Bench, who: Who, how: str, tasks: int) -> Submitted:
    """Submit to an empty store; the server's work on the connections is part of its CPU."""
    with bench.trial_stores.open(who.store) as trial:
        bench.call(who, "prepare", trial)
        asked: dict[str, Any] = {"how": how, "tasks": tasks, "callers": CALLERS}
        first = CpuReading(client=0.0, server=trial.server_cpu_seconds(), tasks=0)
        found = bench.call(who, "submit", trial, seconds=LIMIT_SECONDS, **asked)
        server = trial.server_cpu_seconds()
    last = CpuReading(client=found["cpu_seconds"], server=server, tasks=tasks)
    return Submitted(tasks / found["seconds"], per_task(first, last))


if __name__ == "__main__":
    ask_alone(NAME)
