"""The time that a task waits on an idle system: `python -m bench.questions.latency`.

One worker process runs; another process submits one task at a time, with 2–10 ms of rest between,
and both the time to its start and, where there is one, to its result are taken. The worker has
run a few tasks before, so that nothing is loaded or connected for the first time.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.harness.bench import Bench, Case, CaseResult, clear, new_board
from bench.harness.command import ask_alone
from bench.harness.plan import Part
from bench.harness.processes import ChildProcess
from bench.harness.trial_stores import TrialStore
from bench.peers.board import Board
from bench.questions.board_wait import wait_done
from bench.report.figures import Who

NAME = "latency"
SAMPLES = {"best": 150, "plain": 20}
WARM_UP = 20
WARM_UP_SECONDS = 30.0
LIMIT_SECONDS = 40.0
LEAST_FOR_P99 = 100
SLOW = ("dbos", "absurd", "celery")  # never the fastest: one run
SQLITE_NOTE = "with pauses of 2 to 10 ms between tasks, while the worker still polls often"


def parts(bench: Bench) -> list[Part]:
    plain = [] if bench.quick else bench.whos("latency", "best", "plain")
    plain = [who for who in plain if who.settings == "plain"]
    best = bench.whos("latency", "best")
    return [
        Part(question=NAME, what="best", cases=[_case(bench, who) for who in best]),
        Part(question=NAME, what="plain", cases=[_case(bench, w) for w in plain], needed=False),
    ]


def _case(bench: Bench, who: Who) -> Case:
    once = who.engine in SLOW or who.settings == "plain"
    return Case(
        question=NAME,
        who=who,
        case={"samples": SAMPLES[who.settings]},
        run=partial(measure_latency, bench, who),
        runs=1 if once else None,
        main=("start_p50", "ms"),
        about=10.0 if who.engine in SLOW else 3.5,
    )


def measure_latency(bench: Bench, who: Who) -> CaseResult:
    samples = SAMPLES[who.settings]
    with bench.trial_stores.open(who.store) as trial, new_board(samples) as (path, board):
        bench.call(who, "prepare", trial)
        with bench.working(who, trial, path, samples) as crew:
            _warm_up(bench, who, trial, board, crew)
            clear(path, samples)
            found = _request_latencies(bench, who, trial, path, samples)
    values = {}
    for name, key in (("start", "start_ms"), ("result", "result_ms")):
        if millis := sorted(found.get(key) or ()):
            values[f"{name}_p50"] = (at(millis, 0.5), "ms")
            if len(millis) >= LEAST_FOR_P99:
                values[f"{name}_p99"] = (at(millis, 0.99), "ms")
    notes = [SQLITE_NOTE] if who.is_ours and who.store == "sqlite" else []
    return CaseResult(values=values, notes=notes)


def _warm_up(
    bench: Bench, who: Who, trial: TrialStore, board: Board, crew: list[ChildProcess]
) -> None:
    bench.call(who, "submit", trial, how="one", tasks=WARM_UP)
    wait_done(board, crew, seconds=WARM_UP_SECONDS, tasks=WARM_UP)


def _request_latencies(
    bench: Bench, who: Who, trial: TrialStore, path: Path, samples: int
) -> dict[str, list[float] | None]:
    return bench.call(
        who, "latency", trial, seconds=LIMIT_SECONDS, board=path, size=samples, samples=samples
    )


def at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    ask_alone(NAME)
