"""A bounded wait for the marks of tasks on the board."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.harness.bench import require_alive
from bench.harness.processes import CaseFailed, ChildProcess
from bench.peers.board import Board

POLL_SECONDS = 0.02


def wait_done(
    board: Board, crew: Sequence[ChildProcess], *, seconds: float, tasks: int | None = None
) -> None:
    """Wait until so many tasks (by default all) are done; fail at the limit or a worker's end."""
    wanted, ends_at = board.size if tasks is None else tasks, time.monotonic() + seconds
    while board.count_done() < wanted:
        require_alive(crew)
        if time.monotonic() > ends_at:
            raise CaseFailed(f"{board.count_done()} of {wanted} tasks were done in {seconds:g} s")
        time.sleep(POLL_SECONDS)
