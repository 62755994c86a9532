"""The memory of a worker and of a waiting task: `python -m bench.questions.memory`.

Measured are the worker's resident memory two seconds after its start and its peak while it drains
10 000 tasks, and on Redis the bytes that the server holds for each waiting task and for each that
is done.
"""

from __future__ import annotations

import time
from functools import partial

from bench.harness.bench import Bench, Case, CaseResult, new_board, require_alive
from bench.harness.command import ask_alone
from bench.harness.plan import Part
from bench.harness.processes import ChildProcess, resident_kb
from bench.harness.trial_stores import TrialStore
from bench.peers.board import Board
from bench.report.figures import Who

NAME = "memory"
TASKS = 10_000
FEWER = {"dbos": 1_000, "absurd": 1_000}
IDLE_SECONDS = 2.0
LOAD_SECONDS = 10.0
POLL_SECONDS = 0.05


def parts(bench: Bench) -> list[Part]:
    cases = [
        Case(
            question=NAME,
            who=who,
            case={"tasks": _tasks(who)},
            run=partial(measure_memory, bench, who),
            runs=1,
            main=("worker_load", "MB"),
            about=8.0,
        )
        for who in bench.whos("drain", "best")
    ]
    return [Part(question=NAME, what="best", cases=cases)]


def _tasks(who: Who) -> int:
    return FEWER.get(who.engine, TASKS)


def measure_memory(bench: Bench, who: Who) -> CaseResult:
    values: dict[str, tuple[float, str]] = {}
    tasks = _tasks(who)
    with bench.trial_stores.open(who.store) as trial, new_board(tasks) as (path, board):
        bench.call(who, "prepare", trial)
        with bench.working(who, trial, path, tasks) as crew:
            time.sleep(IDLE_SECONDS)
            require_alive(crew)
            if kilobytes := resident_kb(crew[0].pid):
                values["worker_idle"] = (kilobytes / 1024, "MB")
        before = _redis_bytes(trial)
        bench.call(who, "submit", trial, tasks=tasks, how="bulk")
        waiting = _redis_bytes(trial)
        with bench.working(who, trial, path, tasks) as crew:
            if kilobytes := _most(crew[0], board):
                values["worker_load"] = (kilobytes / 1024, "MB")
        after = _redis_bytes(trial)
    if waiting:
        values["redis_waiting"] = ((waiting - before) / tasks, "bytes/task")
        values["redis_done"] = ((after - before) / tasks, "bytes/task")
    return CaseResult(values=values)


def _most(worker: ChildProcess, board: Board) -> int:
    most, ends_at = 0, time.monotonic() + LOAD_SECONDS
    while board.count_done() < board.size and time.monotonic() < ends_at:
        require_alive([worker])
        most = max(most, resident_kb(worker.pid))
        time.sleep(POLL_SECONDS)
    return max(most, resident_kb(worker.pid))


def _redis_bytes(trial: TrialStore) -> int:
    if trial.redis is None:
        return 0
    with trial.redis.client() as client:
        return int(client.info("memory")["used_memory_dataset"])


if __name__ == "__main__":
    ask_alone(NAME)
