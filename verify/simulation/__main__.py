"""The command `python -m verify.simulation --seeds N`: run worlds and report what broke."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

from verify.simulation.report import Totals, failure, print_line
from verify.simulation.world import Result, run

CHUNK = 10
PRINTED_EVERY = 1_000
PRINTED_EVERY_SHADOWED = 50  # they take ten times as long


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    with _shadow(given.shadow, straight=given.straight == "on") as shadow:
        if given.seed is not None:
            return _replay(given, shadow)
        return _run_all(given, shadow)


@contextmanager
def _shadow(kind: str, *, straight: bool) -> Iterator[str | None]:
    """Yield the shadow as `run` takes it."""
    if kind != "redis":
        yield None if kind == "memory" else kind
        return
    from verify.servers import RedisServer

    with RedisServer() as server:
        yield server.url if straight else f"{server.url}?straight=off"


def _shadow_words(given: argparse.Namespace) -> str:
    """Return the words that name the shadow in a command that replays a seed."""
    return given.shadow if given.straight == "on" else f"{given.shadow} --straight off"


def _run_all(given: argparse.Namespace, shadow: str | None) -> int:
    totals = Totals()
    for result in _results(given, shadow):
        totals.add(result)
        if result.broken is not None:
            print_line(failure(result, given.tenants, _shadow_words(given)))
        if totals.seeds % (PRINTED_EVERY if shadow is None else PRINTED_EVERY_SHADOWED) == 0:
            print_line(totals.summary())
    if given.coverage:
        print_line(totals.coverage())
    print_line(totals.summary())
    missing = [] if given.tenants else totals.missing()
    if missing:
        print_line(f"never met: {', '.join(missing)}")
    return 1 if totals.broken or missing else 0


def _results(given: argparse.Namespace, shadow: str | None) -> Iterator[Result]:
    seeds = range(given.start, given.start + given.seeds)
    run_seed = partial(run, tenants=given.tenants, shadow=shadow)
    if given.processes == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(given.processes) as pool:
        yield from pool.map(run_seed, seeds, chunksize=CHUNK)


def _replay(given: argparse.Namespace, shadow: str | None) -> int:
    """Run a seed twice: both runs must be the same."""
    seed = given.seed
    first, second = (run(seed, given.tenants, shadow) for _ in range(2))
    same = first.digest == second.digest
    print_line(f"seed {seed}: {first.steps} steps, {first.tasks} tasks, trace {first.digest}")
    if not same:
        print_line(f"seed {seed} does not replay: its second trace is {second.digest}")
    if first.broken is not None:
        print_line(failure(first, given.tenants, _shadow_words(given)))
    return 0 if same and first.broken is None else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verify.simulation",
        description="Run the engine in simulated worlds, each drawn from a seed.",
    )
    parser.add_argument("--seeds", type=int, default=200, help="number of worlds to run (200)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument(
        "--seed", type=int, help="run only this seed, twice, and print the hash of its trace"
    )
    parser.add_argument(
        "--tenants",
        choices=("few", "many"),
        help="number of tenants; by default, one world in four has many",
    )
    parser.add_argument(
        "--shadow",
        choices=("memory", "sqlite", "redis"),
        default="memory",
        help="a second store that gets the same calls and must answer the same; "
        "redis starts a server",
    )
    parser.add_argument(
        "--straight", choices=("on", "off"), default="on", help="off: only Redis's general scripts"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="worlds to run at the same time"
    )
    parser.add_argument(
        "--coverage", action="store_true", help="print how often each event and fault occurred"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
