"""How many no-op tasks a second are taken from a full queue: `python -m bench.questions.drain`.

All tasks are submitted first, then the worker processes start; the rate is tasks over the time
from the first start to the last end on the board. Who is not done when the limit is reached has
the rate of what he did until then. Of ours the store must say in the end that all are completed.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

from bench.harness.bench import Bench, Case, Result, new_board, require_alive
from bench.harness.command import ask_alone
from bench.harness.figures import Figure, Who
from bench.harness.processes import Failed
from bench.peers.board import Board

NAME = "drain"
FEW, MANY = 10_000, 200_000
TENANTS = (5, 10_000)
WARM_UP = 2_000
FIRST_START_SECONDS = 30.0
LIMIT_SECONDS = 15.0
LIMIT_SHORT_SECONDS = 8.0  # as it comes, or in a quick run
LIMIT_MANY_SECONDS = 60.0
LIMIT_MANY_SHORT_SECONDS = 15.0
POLL_SECONDS = 0.02


def ask(bench: Bench) -> None:
    """What the goals are about comes first; in a quick run time may end before the rest."""
    asked = bench.whos("drain", "best", *(() if bench.quick else ("plain",)))
    ours = [who for who in asked if who.is_ours]
    with suppress(Failed):  # not counted: the first of all pays for cold caches
        drained(bench, ours[0], tasks=WARM_UP)
    bench.measure(
        [
            *(_case(bench, who) for who in asked),
            *(_case(bench, who, tenants=TENANTS[-1]) for who in ours),
            *([_case(bench, ours[0], tasks=MANY, runs=1)] if bench.quick else []),
            *(_case(bench, who, workers=2) for who in asked if _two(bench, who)),
            *(_case(bench, who, tenants=n) for n in TENANTS[:-1] for who in ours),
        ]
    )
    if not bench.quick:
        bench.measure([_case(bench, who, tasks=MANY) for who in (*ours, *_fastest(bench))])


def _two(bench: Bench, who: Who) -> bool:
    return who.is_ours or not (bench.quick or who.settings == "plain")


def _fastest(bench: Bench) -> list[Who]:
    """Of the peers the two fastest with few tasks: on Redis and on any store."""
    few = partial(bench.book.find, NAME, tasks=FEW, workers=1)
    chosen = [
        max(found, key=lambda figure: figure.median or 0.0).who
        for found in (_of_peers(few(store="redis")), _of_peers(few()))
        if found
    ]
    return list(dict.fromkeys(chosen))


def _of_peers(figures: list[Figure]) -> list[Figure]:
    return [figure for figure in figures if not figure.who.is_ours]


def _case(
    bench: Bench,
    who: Who,
    *,
    tasks: int = FEW,
    workers: int = 1,
    tenants: int = 0,
    runs: int | None = None,
) -> Case:
    case = {"tasks": tasks, "workers": workers, "tenants": tenants}
    run = partial(drained, bench, who, tasks=tasks, workers=workers, tenants=tenants)
    return Case(question=NAME, who=who, case=case, run=run, runs=runs)


def drained(bench: Bench, who: Who, *, tasks: int, workers: int = 1, tenants: int = 0) -> Result:
    limit = _limit(bench, who, tasks)
    with bench.places.open(who.store) as place, new_board(tasks) as (path, board):
        bench.call(who, "prepare", place)
        seconds = 60.0 + tasks / 500
        more = {"tenants": tenants or None}
        bench.call(who, "submit", place, seconds=seconds, tasks=tasks, how="bulk", **more)
        with bench.working(who, place, path, tasks, workers=workers) as crew:
            began = time.monotonic()
            while board.count_done() < tasks:
                require_alive(crew)
                started = board.count_started()
                waited = time.monotonic() - began
                if not started and waited > FIRST_START_SECONDS:
                    raise Failed(f"no task was started within {FIRST_START_SECONDS:g} s")
                if started and waited > limit:
                    break
                time.sleep(POLL_SECONDS)
        result = _rated(board, tasks, limit)
        if "verify" in bench.engine(who).can and board.count_done() == tasks:
            said = bench.call(who, "verify", place)["by_status"]
            if said != {"COMPLETED": tasks}:
                raise Failed(f"of {tasks} tasks the store says {said}")
        return result


def _limit(bench: Bench, who: Who, tasks: int) -> float:
    if tasks > FEW:
        return LIMIT_MANY_SHORT_SECONDS if bench.quick else LIMIT_MANY_SECONDS
    short = bench.quick or who.settings == "plain"
    return LIMIT_SHORT_SECONDS if short else LIMIT_SECONDS


def _rated(board: Board, tasks: int, limit: float) -> Result:
    done, notes = board.count_done(), []
    if done < tasks:
        notes.append(f"stopped after {limit:g} s with {done:,} of {tasks:,} done")
    twice = sum(count > 1 for count in board.dones())
    if twice:
        notes.append(f"{twice:,} tasks were done more than once")
    return Result(values={"rate": (done / board.span_seconds(), "tasks/s")}, notes=notes)


if __name__ == "__main__":
    ask_alone(NAME)
