"""What a worker and a waiting task take of memory: `python -m bench.questions.memory`.

The worker's resident memory two seconds after its start, and the most while it drains 10 000 tasks.
On Redis also the bytes that the server holds for each waiting task, and for each that is done.
"""

from __future__ import annotations

import time
from functools import partial

from bench.harness.bench import Bench, Case, Result, new_board, require_alive
from bench.harness.command import ask_alone
from bench.harness.figures import Who
from bench.harness.places import Place
from bench.harness.processes import Process, resident_kb
from bench.peers.board import Board

NAME = "memory"
TASKS = 10_000
IDLE_SECONDS = 2.0
LOAD_SECONDS = 20.0
POLL_SECONDS = 0.05


def ask(bench: Bench) -> None:
    bench.measure(
        [
            Case(
                question=NAME,
                who=who,
                case={"tasks": TASKS},
                run=partial(weighed, bench, who),
                runs=1 if bench.quick else None,
                main=("worker_load", "MB"),
            )
            for who in bench.whos("drain", "best")
        ]
    )


def weighed(bench: Bench, who: Who) -> Result:
    values: dict[str, tuple[float, str]] = {}
    with bench.places.open(who.store) as place, new_board(TASKS) as (path, board):
        bench.call(who, "prepare", place)
        with bench.working(who, place, path, TASKS) as crew:
            time.sleep(IDLE_SECONDS)
            require_alive(crew)
            values["worker_idle"] = (resident_kb(crew[0].pid) / 1024, "MB")
        before = _redis_bytes(place)
        bench.call(who, "submit", place, tasks=TASKS, how="bulk")
        waiting = _redis_bytes(place)
        with bench.working(who, place, path, TASKS) as crew:
            values["worker_load"] = (_most(crew[0], board) / 1024, "MB")
        after = _redis_bytes(place)
    if waiting:
        values["redis_waiting"] = ((waiting - before) / TASKS, "bytes/task")
        values["redis_done"] = ((after - before) / TASKS, "bytes/task")
    return Result(values=values)


def _most(worker: Process, board: Board) -> int:
    most, ends_at = 0, time.monotonic() + LOAD_SECONDS
    while board.count_done() < TASKS and time.monotonic() < ends_at:
        require_alive([worker])
        most = max(most, resident_kb(worker.pid))
        time.sleep(POLL_SECONDS)
    return max(most, resident_kb(worker.pid))


def _redis_bytes(place: Place) -> int:
    if place.redis is None:
        return 0
    with place.redis.client() as client:
        return int(client.info("memory")["used_memory_dataset"])


if __name__ == "__main__":
    ask_alone(NAME)
