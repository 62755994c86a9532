"""The command line that all adapters share: ``adapter.py ROLE --url URL --board FILE --size N …``

An adapter ends with ``if __name__ == "__main__": main()``. Its module says what it is (NAME,
STORES, SETTINGS, CAN, VERSION) and has a function for each role that it can play; the last line
on standard output is one JSON object with what came of it. Logs belong on standard error. Nothing
but the standard library is used here: this module is imported in the environment of each peer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.board import Board
else:
    from board import Board  # beside this file: adapters run with PYTHONPATH=bench/peers

ROLES = ("describe", "prepare", "submit", "work", "latency", "stages", "verify")
NEEDS_BOARD = {"work", "latency"}
WAIT_SECONDS = 30.0  # no single task of an idle system takes longer
POLL_SECONDS = 0.00003


@dataclass(frozen=True, slots=True, kw_only=True)
class Elapsed:
    """The time that a timed part took, and the CPU that this process used for it."""

    seconds: float
    cpu_seconds: float  # children that have ended are included


class Stopwatch:
    """A stopwatch runs from its making on."""

    def __init__(self) -> None:
        self._cpu, self._begun = _cpu_seconds(), time.perf_counter()

    def stop(self) -> Elapsed:
        seconds = time.perf_counter() - self._begun
        return Elapsed(seconds=seconds, cpu_seconds=_cpu_seconds() - self._cpu)


def _cpu_seconds() -> float:
    """Return the CPU time of this process, to the microsecond, and of its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class TooSlow(TimeoutError):
    """A task was not started in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options with which the harness calls an adapter."""

    role: str
    url: str
    settings: str  # best, plain
    slots: int  # tasks at once in one worker
    tasks: int
    how: str  # one, many, bulk
    callers: int
    task: str  # noop, hold
    hold_seconds: float
    samples: int
    seed: int
    workflows: int
    stages: int
    at_once: int
    tenants: int
    _board: Board | None

    @property
    def board(self) -> Board:
        if self._board is None:
            raise SystemExit(f"{self.role} needs --board and --size")
        return self._board

    @property
    def best(self) -> bool:
        return self.settings == "best"

    @property
    def store(self) -> str:
        """redis, sqlite or postgres, as in STORES."""
        scheme = self.url.partition(":")[0]
        return {"postgresql": "postgres"}.get(scheme, scheme)

    @property
    def path(self) -> str:
        """The file of ``sqlite:////absolute/path.db``."""
        return self.url.partition("://")[2].removeprefix("/")


def main(adapter: Any = None, arguments: Sequence[str] | None = None) -> None:
    """Play the role that the command line names; ``adapter`` is the module, else ``__main__``."""
    module = adapter if adapter is not None else sys.modules["__main__"]
    options = _parse(arguments)
    answer = _play(module, options)
    answer["rss_peak_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stderr.flush()
    print(json.dumps(answer), flush=True)
    if options.role == "work":
        os._exit(0)  # whatever threads the library has left behind


def _play(module: Any, options: Options) -> dict[str, Any]:
    if options.role == "describe":
        return describe(module)
    found = getattr(module, options.role)(options)
    if options.role in {"submit", "stages"}:
        return {"seconds": found.seconds, "cpu_seconds": found.cpu_seconds}
    return dict(found or {})


def describe(module: Any) -> dict[str, Any]:
    return {
        "name": module.NAME,
        "version": module.VERSION,
        "stores": list(module.STORES),
        "settings": dict(module.SETTINGS),
        "can": sorted(module.CAN),
        "python": platform.python_version(),
    }


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--url", default="")
    parser.add_argument("--settings", choices=("best", "plain"), default="best")
    parser.add_argument("--board", default="")
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--how", choices=("one", "many", "bulk"), default="bulk")
    parser.add_argument("--callers", type=int, default=100)
    parser.add_argument("--task", choices=("noop", "hold"), default="noop")
    parser.add_argument("--hold-seconds", type=float, default=2.0)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workflows", type=int, default=100)
    parser.add_argument("--stages", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--tenants", type=int, default=0)
    given = vars(parser.parse_args(arguments))
    path, size = given.pop("board"), given.pop("size")
    board = Board(path, size) if path and size else None
    if board is None and given["role"] in NEEDS_BOARD:
        parser.error(f"{given['role']} needs --board and --size")
    return Options(_board=board, **given)


# -- what adapters use to measure alike


def shares(tasks: int, callers: int) -> list[range]:
    """The numbers 0 … tasks-1, cut into one range per caller."""
    cuts = [tasks * n // callers for n in range(callers + 1)]
    return [range(first, last) for first, last in pairwise(cuts)]


def pauses(options: Options) -> Iterator[tuple[int, float]]:
    """The number of each sample, and the seconds of rest before it: 2–10 ms, from the seed."""
    chance = random.Random(options.seed)
    for number in range(options.samples):
        yield number, chance.uniform(0.002, 0.010)


def start_ms(board: Board, number: int, submitted_ns: int) -> float:
    """Milliseconds from ``time.monotonic_ns()`` before the submit to the start; waits for it."""
    ends_at = time.monotonic() + WAIT_SECONDS
    while (at := board.started_at(number)) is None:
        if time.monotonic() > ends_at:
            raise TooSlow(f"task {number} was not started within {WAIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    return (at - submitted_ns) / 1e6


async def start_ms_async(board: Board, number: int, submitted_ns: int) -> float:
    """The same in a loop that must go on meanwhile."""
    ends_at = time.monotonic() + WAIT_SECONDS
    while (at := board.started_at(number)) is None:
        if time.monotonic() > ends_at:
            raise TooSlow(f"task {number} was not started within {WAIT_SECONDS:g} s")
        await asyncio.sleep(POLL_SECONDS)
    return (at - submitted_ns) / 1e6
