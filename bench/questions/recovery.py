"""The fate of tasks whose worker is killed: `python -m bench.questions.recovery`.

A hundred tasks that take two seconds each are submitted; when they are in flight in one worker (or
as many as it takes), it gets kill -9, and another one starts at once. All as they come, nothing
set but the number of tasks at once. Counted when all are done, or after a limit: tasks not done
(and how many of them were in flight at the kill: the others may only still wait for their turn, as
with an engine that runs one at a time), tasks done more than once, seconds from the kill until the
last was done. These runs wait rather than work, so they go on side by side.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from threading import BoundedSemaphore
from typing import Any

from bench.harness import processes
from bench.harness.bench import Bench, Case, CaseResult, new_board, require_alive
from bench.harness.command import ask_alone
from bench.harness.plan import Part
from bench.harness.processes import CaseFailed, ChildProcess
from bench.peers.board import Board
from bench.report.figures import Who

NAME = "recovery"
TASKS = 100
HOLD_SECONDS = 2.0
START_SECONDS = 30.0
FLIGHT_SECONDS = 1.5  # after the first start; before the first can be done
LIMIT_SECONDS = {True: 40.0, False: 150.0}  # quick or not
AROUND_SECONDS = 15.0  # to submit, start and stop
STARTING = 2
START_ABOUT_SECONDS = 5.0
POLL_SECONDS = 0.02


def parts(bench: Bench) -> list[Part]:
    asked = bench.whos("recovery", "plain")
    crowd = _SideBySide(bench, asked)
    cases = [
        Case(
            question=NAME,
            who=who,
            case={"tasks": TASKS, "limit_seconds": int(crowd.limit)},
            run=partial(crowd.result, who),
            runs=1,
            main=("not_done_at_limit", "tasks"),
            about=crowd.seconds / len(asked),
        )
        for who in asked
    ]
    return [Part(question=NAME, what="as they come", cases=cases, fixed=True)]


class _SideBySide:
    """All of them wait at the same time; only a few at once start and are killed."""

    def __init__(self, bench: Bench, asked: Sequence[Who]) -> None:
        self._bench, self._asked = bench, asked
        self.limit = LIMIT_SECONDS[bench.quick]
        self._starting = BoundedSemaphore(STARTING)
        self._begun: dict[Who, Future[CaseResult]] = {}

    @property
    def seconds(self) -> float:
        """Return the seconds of the question if every engine uses up the limit."""
        return len(self._asked) / STARTING * START_ABOUT_SECONDS + self.limit + AROUND_SECONDS

    def result(self, who: Who) -> CaseResult:
        if not self._begun:
            self._pool = ThreadPoolExecutor(len(self._asked))
            self._begun = {one: self._pool.submit(self._run, one) for one in self._asked}
        try:
            return self._begun[who].result()
        except Exception:
            raise
        except BaseException:  # somebody wants it to end
            self._pool.shutdown(wait=False, cancel_futures=True)
            processes.end_all()
            raise

    def _run(self, who: Who) -> CaseResult:
        return measure_recovery(self._bench, who, self.limit, self._starting)


def measure_recovery(
    bench: Bench, who: Who, limit: float, starting: AbstractContextManager[object]
) -> CaseResult:
    hold: dict[str, Any] = {"slots": TASKS, "hold_seconds": HOLD_SECONDS, "task": "hold"}
    with bench.trial_stores.open(who.store, apart=True) as trial, new_board(TASKS) as (path, board):
        with starting:
            bench.call(who, "prepare", trial)
            bench.call(who, "submit", trial, tasks=TASKS, how="bulk", **hold)
            with bench.start_worker(who, trial, path, TASKS, **hold) as first:
                _wait_in_flight(board, first)
                first.kill()
        killed_at = time.monotonic_ns()
        in_flight = {n for n in range(TASKS) if board.started_at(n) and not board.done_at(n)}
        with bench.working(who, trial, path, TASKS, **hold) as crew:
            _wait_done(board, crew, limit)
        result = _count_outcomes(board, in_flight, killed_at, limit)
        own = bench.engine(who).settings["plain"]
        return CaseResult(values=result.values, notes=[*result.notes, f"by its settings: {own}"])


def _wait_in_flight(board: Board, worker: ChildProcess) -> None:
    ends_at, first_at = time.monotonic() + START_SECONDS, None
    while (started := board.count_started()) < TASKS:
        require_alive([worker])
        now = time.monotonic()
        if started and first_at is None:
            first_at = now
        if first_at is not None and now > first_at + FLIGHT_SECONDS:
            return
        if first_at is None and now > ends_at:
            raise CaseFailed(f"no task was started within {START_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _wait_done(board: Board, crew: list[ChildProcess], limit: float) -> None:
    ends_at = time.monotonic() + limit
    while board.count_done() < TASKS and time.monotonic() < ends_at:
        require_alive(crew)
        time.sleep(POLL_SECONDS)
    time.sleep(HOLD_SECONDS + 1)  # whatever runs a second time may come to its end


def _count_outcomes(board: Board, in_flight: set[int], killed_at: int, limit: float) -> CaseResult:
    not_done = {number for number in range(TASKS) if not board.done_at(number)}
    twice = sum(count > 1 for count in board.dones())
    values = {
        "in_flight": (float(len(in_flight)), "tasks"),
        "not_done_at_limit": (float(len(not_done)), "tasks"),
        "in_flight_not_done": (float(len(not_done & in_flight)), "tasks"),
        "done_twice": (float(twice), "tasks"),
    }
    if not_done:
        return CaseResult(values=values, notes=[f"counted after {limit:g} s"])
    last = max(board.done_at(number) or 0 for number in range(TASKS))
    values["seconds"] = ((last - killed_at) / 1e9, "s")
    return CaseResult(values=values)


if __name__ == "__main__":
    ask_alone(NAME)
