"""A question asked alone, or all of them: what both command lines share."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import msgspec

from bench.harness import engines
from bench.harness.bench import Bench
from bench.harness.plan import carry_out, plan_parts
from bench.harness.trial_stores import TrialStores

QUESTIONS = (
    *("pairs", "drain", "submit", "latency", "stages", "growth", "memory", "recovery"),
    *("triggers", "plans", "pages", "service", "capacity"),
)
OURS_ALONE = frozenset({"growth", "triggers", "plans", "pages", "service", "capacity"})  # no peer
# The fastest on Redis, of all, on SQLite; and what stages are compared with. Dramatiq, which is in
# no goal the fastest, would take the time of the others.
QUICK_PEERS = ("repid", "pgqueuer", "huey", "dbos")
QUICK_SECONDS = 270.0
FULL_SECONDS = 60 * 60.0
LEAST_RUNS = 3
LEAST_SECONDS = 200.0  # however long the environments took to be made


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    quick: bool
    runs: int
    peers: tuple[str, ...] | None

    @property
    def is_full(self) -> bool:
        """Return whether the run has all peers, and as many runs as a spread needs."""
        return not self.quick and self.peers is None and self.runs >= LEAST_RUNS


@contextmanager
def open_bench(
    options: RunOptions, questions: Sequence[str]
) -> Iterator[tuple[Bench, dict[str, str]]]:
    """Yield a bench for these questions, and the peers that cannot take part with the reason."""
    names = () if OURS_ALONE.issuperset(questions) else options.peers
    if names is None and options.quick:
        names = QUICK_PEERS
    print("Making the environments ready ...", file=sys.stderr, flush=True)
    begun = time.monotonic()
    found, problems = engines.peers(names)
    for name, reason in problems.items():
        print(f"  {name} takes no part: {reason}", file=sys.stderr, flush=True)
    with TrialStores() as trial_stores:
        ours = engines.ours()
        seconds = FULL_SECONDS
        if options.quick:
            seconds = max(LEAST_SECONDS, QUICK_SECONDS - (time.monotonic() - begun))
        yield (
            Bench(
                trial_stores,
                ours,
                found,
                ceiling=engines.ceiling(),
                runs=options.runs,
                quick=options.quick,
                seconds=seconds,
            ),
            problems,
        )


def ask_alone(question: str, arguments: Sequence[str] | None = None) -> None:
    """The command line of one question; its table goes to standard output."""
    from bench.report.tables import table

    parser = argparse.ArgumentParser(prog=f"python -m bench.questions.{question}")
    add_options(parser)
    end_on_sigterm()
    with open_bench(run_options(parser.parse_args(arguments)), [question]) as (bench, _):
        carry_out(bench, plan_parts(bench, [question]), lambda: None)
        print("\n".join(table(bench.book, question)))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="few peers, small amounts")
    parser.add_argument("--runs", type=int, default=LEAST_RUNS, help="of each case (3)")
    parser.add_argument("--peers", help="comma-separated; none: ours alone")


def run_options(given: argparse.Namespace) -> RunOptions:
    peers = None
    if given.peers is not None:
        peers = tuple(name for name in given.peers.split(",") if name not in ("", "none"))
    return RunOptions(quick=given.quick, runs=given.runs, peers=peers)


def end_on_sigterm() -> None:
    """Exit on SIGTERM, so that whatever was started is ended, too."""

    def end(*_: object) -> NoReturn:
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
