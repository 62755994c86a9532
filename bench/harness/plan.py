"""The plan of a run: the order of the measurements, and how long each part may take.

The cases that a goal needs come first, from all questions; the others have the time that is left.
So no question is starved by one before it, and every goal has its runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

import msgspec

from bench.harness.bench import Bench, Case


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Cases of one question that are measured in turn."""

    question: str
    what: str
    cases: Sequence[Case]
    needed: bool = True  # by a goal, or by the question itself
    fixed: bool = False  # its time cannot be cut

    def seconds(self, runs: int) -> float:
        return sum(case.seconds * (case.runs or runs) for case in self.cases)


def plan_parts(bench: Bench, questions: Sequence[str]) -> list[Part]:
    found: list[Part] = []
    for question in questions:
        found += importlib.import_module(f"bench.questions.{question}").parts(bench)
    ordered = sorted(found, key=lambda part: not part.needed)
    return [part for part in ordered if part.cases]


def format_plan(bench: Bench, parts: Sequence[Part]) -> list[str]:
    """Return the lines of the plan, with the minutes that it is likely to take."""
    lines = [
        f"  {part.seconds(bench.runs) / 60:5.1f} min  {part.question}: {part.what}"
        f" ({len(part.cases)} cases){'' if part.needed else ', if there is time'}"
        for part in parts
    ]
    needed = sum(part.seconds(bench.runs) for part in parts if part.needed) / 60
    whole = sum(part.seconds(bench.runs) for part in parts) / 60
    most = bench.whole_seconds_left / 60
    last = f"  about {needed:.0f} min for the goals, {whole:.0f} min for all"
    return ["The plan:", *lines, f"{last}; it ends after {most:.0f} min"]


def carry_out(bench: Bench, parts: Sequence[Part], after: Callable[[], None]) -> None:
    """Measure the parts in order; ``after`` is called after each of them."""
    print("\n".join(format_plan(bench, parts)), file=sys.stderr, flush=True)
    for n, part in enumerate(parts):
        bench.allot(allot_seconds(bench.whole_seconds_left, part, parts[n + 1 :], bench.runs))
        print(
            f"{part.question}, {part.what}: at most {bench.seconds_left:,.0f} s",
            file=sys.stderr,
            flush=True,
        )
        bench.measure(part.cases)
        after()


def allot_seconds(left: float, part: Part, later: Sequence[Part], runs: int) -> float:
    """Return the seconds for a part: its share, and more if a goal needs it and others do not."""
    if part.fixed:
        return left
    left = max(0.0, left - sum(one.seconds(runs) for one in later if one.fixed))
    rivals = [one for one in later if not one.fixed and (one.needed or not part.needed)]
    own, others = part.seconds(runs), sum(one.seconds(runs) for one in rivals)
    share = left * own / (own + others) if own else 0.0
    return max(share, left - others) if part.needed else share
