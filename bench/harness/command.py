"""A question asked alone, or all of them: what both command lines share."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import msgspec

from bench.harness import engines
from bench.harness.bench import Bench
from bench.harness.places import Places

# In this order. Each gets its share of the time that is left, in a quick and in a full run, so that
# none takes it all. The last has a time of its own: it waits for leases to lapse.
QUESTIONS = {
    "drain": (70, 600),
    "submit": (30, 400),
    "latency": (25, 350),
    "stages": (35, 300),
    "floor": (35, 120),
    "growth": (35, 350),
    "memory": (12, 60),
    "recovery": (0, 0),
}
QUICK_PEERS = ("repid", "pgqueuer", "huey", "dbos")  # the fastest on Redis, of all, on SQLite
QUICK_SECONDS = 270.0
FULL_SECONDS = 40 * 60.0
LEAST_SECONDS = 200.0  # however long the environments took to be made


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    quick: bool
    runs: int
    peers: tuple[str, ...] | None


@contextmanager
def opened(asked: Asked) -> Iterator[tuple[Bench, dict[str, str]]]:
    """A bench, and the peers that cannot take part with the reason."""
    names = asked.peers
    if names is None and asked.quick:
        names = QUICK_PEERS
    print("Making the environments ready ...", file=sys.stderr, flush=True)
    begun = time.monotonic()
    found, problems = engines.peers(names)
    for name, reason in problems.items():
        print(f"  {name} takes no part: {reason}", file=sys.stderr, flush=True)
    with Places() as places:
        ours = engines.ours()
        seconds = FULL_SECONDS
        if asked.quick:
            seconds = max(LEAST_SECONDS, QUICK_SECONDS - (time.monotonic() - begun))
        yield (
            Bench(places, ours, found, runs=asked.runs, quick=asked.quick, seconds=seconds),
            problems,
        )


def ask_all(bench: Bench, questions: Sequence[str]) -> None:
    from bench.questions import recovery

    reserved = recovery.seconds(bench) if "recovery" in questions else 0.0
    shared = [question for question in questions if question != "recovery"]
    for n, question in enumerate(shared):
        shares = [QUESTIONS[one][not bench.quick] for one in shared[n:]]
        bench.allot(shares[0] / sum(shares), reserved=reserved)
        ask(bench, question)
    if reserved:
        bench.allot(1.0)
        ask(bench, "recovery")


def ask(bench: Bench, question: str) -> None:
    print(f"{question}: at most {bench.seconds_left:,.0f} s", file=sys.stderr, flush=True)
    importlib.import_module(f"bench.questions.{question}").ask(bench)


def ask_alone(question: str, arguments: Sequence[str] | None = None) -> None:
    """The command line of one question; its table goes to standard output."""
    from bench.harness.tables import table

    parser = argparse.ArgumentParser(prog=f"python -m bench.questions.{question}")
    add_options(parser)
    end_on_sigterm()
    with opened(asked_of(parser.parse_args(arguments))) as (bench, _):
        ask(bench, question)
        print("\n".join(table(bench.book, question)))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="few peers, small amounts")
    parser.add_argument("--runs", type=int, default=3, help="of each case (3)")
    parser.add_argument("--peers", help="comma-separated; none: ours alone")


def asked_of(given: argparse.Namespace) -> Asked:
    peers = None
    if given.peers is not None:
        peers = tuple(name for name in given.peers.split(",") if name not in ("", "none"))
    return Asked(quick=given.quick, runs=given.runs, peers=peers)


def end_on_sigterm() -> None:
    """So that whatever was started is ended, too."""

    def end(*_: object) -> NoReturn:
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, end)
