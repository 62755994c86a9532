"""`python -m holdfast.testing.simulation --seeds N`: run worlds, say what broke."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from holdfast.testing.simulation.report import Totals, failure, say
from holdfast.testing.simulation.world import Result, run

CHUNK = 10
SAID_EVERY = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.seed is not None:
        return _replay(given.seed, given.tenants)
    totals = Totals()
    for result in _results(range(given.start, given.start + given.seeds), given):
        totals.add(result)
        if result.broken is not None:
            say(failure(result, given.tenants))
        if totals.seeds % SAID_EVERY == 0:
            say(totals.summary())
    if given.coverage:
        say(totals.coverage())
    say(totals.summary())
    missing = [] if given.tenants else totals.missing()
    if missing:
        say(f"never met: {', '.join(missing)}")
    return 1 if totals.broken or missing else 0


def _results(seeds: range, given: argparse.Namespace) -> Iterator[Result]:
    one = partial(run, tenants=given.tenants)
    if given.processes == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(given.processes) as pool:
        yield from pool.map(one, seeds, chunksize=CHUNK)


def _replay(seed: int, tenants: str | None) -> int:
    """Twice: the same seed must give the same run."""
    first, second = run(seed, tenants), run(seed, tenants)
    same = first.digest == second.digest
    say(f"seed {seed}: {first.steps} steps, {first.tasks} tasks, trace {first.digest}")
    if not same:
        say(f"seed {seed} does not replay: its second trace is {second.digest}")
    if first.broken is not None:
        say(failure(first, tenants))
    return 0 if same and first.broken is None else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.simulation",
        description="Run the engine in simulated worlds, each drawn from a seed.",
    )
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds (200)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="only this one, twice, with its trace's hash")
    parser.add_argument(
        "--tenants", choices=("few", "many"), help="else one world in four has many"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--coverage", action="store_true", help="print how often each thing was met"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
