"""The rate at which stages of workflows are committed: `python -m bench.questions.stages`.

Workflows of five stages that do nothing, at 1, 50 and 500 at once, and of fifty stages: the cost of
a stage must not grow with their number. Submitting and awaiting the results are part of the time,
and everything runs in one process. The fast run more workflows, so that each run takes long enough.
"""

from __future__ import annotations

from functools import partial

import msgspec

from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.cpu import CpuReading, per_task
from bench.harness.plan import Part
from bench.report.figures import Who

NAME = "stages"
LIMIT_SECONDS = 60.0


class StageAmount(msgspec.Struct, frozen=True, kw_only=True):
    stages: int
    at_once: int
    ours: int  # workflows
    peers: int


AMOUNTS = (
    StageAmount(stages=5, at_once=50, ours=2000, peers=200),
    StageAmount(stages=5, at_once=1, ours=300, peers=50),
    StageAmount(stages=5, at_once=500, ours=2000, peers=500),
    StageAmount(stages=50, at_once=50, ours=200, peers=20),
)
LONG = AMOUNTS[-1]
RIVAL = "dbos"  # whom the goals name


def parts(bench: Bench) -> list[Part]:
    best = bench.whos("stages", "best")
    plain = [] if bench.quick else bench.whos("stages", "best", "plain")
    plain = [who for who in plain if who.settings == "plain"]
    goal = [who for who in best if who.is_ours or who.engine == RIVAL]
    goals = [
        *(_case(bench, who, amount) for amount in AMOUNTS[:2] for who in goal),
        *(_case(bench, who, LONG) for who in best if who.is_ours),
    ]
    rest = [
        *(_case(bench, who, amount) for amount in AMOUNTS[:2] for who in best if who not in goal),
        *(_case(bench, who, AMOUNTS[2], runs=1) for who in best),
        *(_case(bench, who, LONG, runs=1) for who in best if not who.is_ours),
        *(_case(bench, who, amount, runs=1) for amount in AMOUNTS[:2] for who in plain),
    ]
    return [
        Part(question=NAME, what="goals", cases=goals),
        Part(question=NAME, what="the others", cases=[] if bench.quick else rest, needed=False),
    ]


def _case(bench: Bench, who: Who, amount: StageAmount, *, runs: int | None = None) -> Case:
    return Case(
        question=NAME,
        who=who,
        case={"stages": amount.stages, "at_once": amount.at_once},
        run=partial(measure_stages, bench, who, amount),
        runs=runs,
        main=("rate", "stages/s"),
        about=_about(who, amount),
    )


def _about(who: Who, amount: StageAmount) -> float:
    return 3.5 if who.is_ours else 4.0 + amount.peers * amount.stages / 350


def measure_stages(bench: Bench, who: Who, amount: StageAmount) -> CaseResult:
    workflows = amount.ours if who.is_ours else amount.peers
    with bench.trial_stores.open(who.store) as trial:
        bench.call(who, "prepare", trial)
        first = CpuReading(client=0.0, server=trial.server_cpu_seconds(), tasks=0)
        found = bench.call(
            who,
            "stages",
            trial,
            seconds=LIMIT_SECONDS,
            workflows=workflows,
            stages=amount.stages,
            at_once=amount.at_once,
        )
        server = trial.server_cpu_seconds()
    done = workflows * amount.stages
    last = CpuReading(client=found["cpu_seconds"], server=server, tasks=done)
    values = {"rate": (done / found["seconds"], "stages/s")}
    return CaseResult(values=values | per_task(first, last, unit="µs/stage"))


if __name__ == "__main__":
    ask_alone(NAME)
