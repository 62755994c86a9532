"""The rate at which a full queue of no-op tasks is drained: `python -m bench.questions.drain`.

All tasks are submitted first, then the worker processes start; the rate is tasks over the time
from the first start to the last end on the board. An engine that is not done at the
limit has the rate of what it did until then. Our store must report all tasks completed in the end.
CPU is read when the first start and when the last end is seen, and divided by the tasks between.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import msgspec

from bench.harness.bench import Bench, Case, CaseResult, new_board, require_alive
from bench.harness.command import ask_alone
from bench.harness.cpu import CpuReading, group_cpu_seconds, per_task
from bench.harness.plan import Part
from bench.harness.processes import CaseFailed, ChildProcess
from bench.harness.trial_stores import TrialStore
from bench.peers.board import Board
from bench.report.figures import Who

NAME = "drain"
FEW, MANY = 10_000, 200_000
FEWER = {"dbos": 1_000, "absurd": 1_000}
FEWER_PLAIN = {"celery": 2_000, "arq": 2_000, "saq": 2_000, "taskiq": 2_000}
TENANTS = (5, 10_000)
RIVALS = ("repid", "pgqueuer", "huey", "dramatiq")  # one of them is the fastest, on any store
RIVALS_MANY = ("repid", "pgqueuer")
WARM_UP = 2_000
FIRST_START_SECONDS = 30.0
LIMIT_SECONDS = 15.0
LIMIT_OTHERS_SECONDS = 6.0
LIMIT_PLAIN_SECONDS = 5.0
LIMIT_QUICK_SECONDS = 8.0
LIMIT_MANY_SECONDS = {True: 15.0, False: 60.0}  # quick or not
POLL_SECONDS = 0.02


def parts(bench: Bench) -> list[Part]:
    """The goals' cases in alternation, then those with many tasks, then whatever else."""
    best = bench.whos("drain", "best")
    plain = [] if bench.quick else [w for w in bench.whos("drain", "best", "plain") if _plain(w)]
    ours = [who for who in best if who.is_ours]
    rivals = [who for who in best if who.engine in RIVALS]
    others = [who for who in best if not (who.is_ours or who in rivals)]
    crowd = [who for who in ours if who.store == "redis"]
    goals = [
        *(_case(bench, who) for who in ours),
        *(_case(bench, who, tenants=TENANTS[-1]) for who in crowd),
        *(_case(bench, who) for who in rivals),
    ]
    rest = [
        *(_case(bench, who, workers=2) for who in ours),
        *(_case(bench, who, tenants=TENANTS[0], runs=1) for who in ours),
        *(_case(bench, who, tenants=TENANTS[-1], runs=1) for who in ours if who not in crowd),
        *(_case(bench, who) for who in others),
        *(_case(bench, who, workers=2, runs=1) for who in rivals if not bench.quick),
        *(_case(bench, who, runs=1) for who in plain),
        *(_case(bench, who, workers=2, runs=1) for who in others if not bench.quick),
    ]
    goals[0] = _after_warm_up(bench, goals[0])
    return [
        Part(question=NAME, what="goals", cases=goals),
        Part(question=NAME, what=f"{MANY:,} tasks", cases=_many(bench, ours, rivals)),
        Part(question=NAME, what="the others", cases=rest, needed=False),
    ]


def _after_warm_up(bench: Bench, case: Case) -> Case:
    """Run once uncounted before the first case, which would pay for cold caches."""
    warm: list[CaseResult] = []

    def run() -> CaseResult:
        if not warm:
            warm.append(measure_drain(bench, case.who, tasks=WARM_UP))
        return case.run()

    return msgspec.structs.replace(case, run=run)


def _many(bench: Bench, ours: list[Who], rivals: list[Who]) -> list[Case]:
    """Once each: the ratio of many to few is measured in pairs."""
    once = [who for who in ours if who.store == "redis" or not bench.quick]
    once += [] if bench.quick else [w for w in rivals if w.engine in RIVALS_MANY]
    return [_case(bench, who, tasks=MANY, runs=1) for who in once]


def _plain(who: Who) -> bool:
    return who.settings == "plain"


def _case(
    bench: Bench,
    who: Who,
    *,
    tasks: int | None = None,
    workers: int = 1,
    tenants: int = 0,
    runs: int | None = None,
) -> Case:
    count = _amount(who) if tasks is None else tasks
    case = {"tasks": count, "workers": workers, "tenants": tenants}
    run = partial(measure_drain, bench, who, tasks=count, workers=workers, tenants=tenants)
    about = _about(who, count)
    return Case(question=NAME, who=who, case=case, run=run, runs=runs, about=about)


def _amount(who: Who) -> int:
    """Return the number of tasks; slow engines get fewer, so that they, too, come to an end."""
    return FEWER.get(who.engine, FEWER_PLAIN.get(who.engine, FEW) if _plain(who) else FEW)


def _about(who: Who, tasks: int) -> float:
    if tasks > FEW:
        return 25.0 if who.is_ours else 50.0
    if who.is_ours:
        return 4.0
    return 6.0 if who.engine in RIVALS else 9.0


def measure_drain(
    bench: Bench, who: Who, *, tasks: int, workers: int = 1, tenants: int = 0
) -> CaseResult:
    with bench.trial_stores.open(who.store) as trial:
        return drain_trial(bench, who, trial, tasks=tasks, workers=workers, tenants=tenants)


def drain_trial(
    bench: Bench, who: Who, trial: TrialStore, *, tasks: int, workers: int = 1, tenants: int = 0
) -> CaseResult:
    """Fill this store and drain it."""
    limit = _limit(bench, who, tasks)
    with new_board(tasks) as (path, board):
        bench.call(who, "prepare", trial)
        seconds = 60.0 + tasks / 500
        more = {"tenants": tenants or None}
        bench.call(who, "submit", trial, seconds=seconds, tasks=tasks, how="bulk", **more)
        with bench.working(who, trial, path, tasks, workers=workers) as crew:
            began, first = time.monotonic(), None
            while board.count_done() < tasks:
                require_alive(crew)
                started = board.count_started()
                if started and first is None:
                    first = _read_cpu(crew, trial, board)
                waited = time.monotonic() - began
                if not started and waited > FIRST_START_SECONDS:
                    raise CaseFailed(f"no task was started within {FIRST_START_SECONDS:g} s")
                if started and waited > limit:
                    break
                time.sleep(POLL_SECONDS)
            used = per_task(first, _read_cpu(crew, trial, board)) if first else {}
        result = _result(board, tasks, limit, used)
        if "verify" in bench.engine(who).can and board.count_done() == tasks:
            said = bench.call(who, "verify", trial)["by_status"]
            if said != {"COMPLETED": tasks}:
                raise CaseFailed(f"of {tasks} tasks the store says {said}")
        return result


def _limit(bench: Bench, who: Who, tasks: int) -> float:
    if tasks > FEW:
        return LIMIT_MANY_SECONDS[bench.quick]
    if _plain(who):
        return LIMIT_PLAIN_SECONDS
    if bench.quick:
        return LIMIT_QUICK_SECONDS
    return LIMIT_SECONDS if who.is_ours or who.engine in RIVALS else LIMIT_OTHERS_SECONDS


def _read_cpu(crew: Sequence[ChildProcess], trial: TrialStore, board: Board) -> CpuReading:
    """Read what workers and servers have used; importing and connecting are over by the first."""
    client = group_cpu_seconds(process.pid for process in crew)
    return CpuReading(client=client, server=trial.server_cpu_seconds(), tasks=board.count_done())


def _result(
    board: Board, tasks: int, limit: float, used: dict[str, tuple[float, str]]
) -> CaseResult:
    done, notes = board.count_done(), []
    if not done:
        raise CaseFailed(f"no task was done within {limit:g} s")
    if done < tasks:
        notes.append(f"stopped after {limit:g} s with {done:,} of {tasks:,} done")
    twice = sum(count > 1 for count in board.dones())
    if twice:
        notes.append(f"{twice:,} tasks were done more than once")
    rate = (done / board.span_seconds(), "tasks/s")
    return CaseResult(values={"rate": rate, **used}, notes=notes)


if __name__ == "__main__":
    ask_alone(NAME)
