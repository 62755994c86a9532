"""Has a ratio of ours to the floor got worse? `python -m bench.harness.guard` (`make check-bench`).

Times differ from machine to machine, and so do rates; how far we are from the bare writes on the
same machine in the same minute differs much less. Of both sides the best run counts: neighbours
make a run slow, hardly ever fast. Each ratio is compared with the one that is committed in
`bench/results/baseline.json`, which was the best of as many tries. What looks worse is measured
again, and only what is worse by more than the tolerance each time is a regression. Beside the
ratios stands what was written for a task (Redis: commands and bytes, SQLite: rows): it hardly
varies, so little more of it is a regression. `--write-baseline` writes what is measured now.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.harness import command, engines
from bench.harness.bench import Bench
from bench.harness.paths import RESULTS
from bench.harness.trial_stores import TrialStores
from bench.questions.floor import NAME, STORES, WHATS, Thing, cases, written_in
from bench.report.figures import FLOOR, OURS, Book
from bench.report.tables import grid

BASELINE = RESULTS / "baseline.json"
TOLERANCE = 0.30  # neighbours on a shared machine cost one side up to a fifth now and then
WRITTEN_TOLERANCE = 0.10  # batches differ a little from run to run
RUNS = 2
TRIES = 3
TRY_SECONDS = 90.0
TASKS, WORKFLOWS = 5_000, 500
THINGS = {
    f"{what}_{store}_vs_floor": Thing(what=what, store=store, tasks=TASKS, workflows=WORKFLOWS)
    for what in WHATS
    for store in STORES
}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Measured ratios, of which more is better, and what is written for a task, by name."""

    ratios: dict[str, float]
    written: dict[str, float] = {}


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    tolerance: float = TOLERANCE
    written_tolerance: float = WRITTEN_TOLERANCE
    ratios: dict[str, float]
    written: dict[str, float] = {}


Measure = Callable[[Sequence[str]], Measured]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    baseline: float
    limit: float
    now: float | None
    less_is_better: bool = False

    @property
    def regressed(self) -> bool:
        if self.now is None:
            return False
        return self.now > self.limit if self.less_is_better else self.now < self.limit

    @property
    def word(self) -> str:
        if self.now is None:
            return "NOT MEASURED"
        return "REGRESSION" if self.regressed else "ok"


def compare_with_baseline(baseline: Baseline, measured: Measured) -> list[Verdict]:
    ratios = [
        Verdict(
            name=name,
            baseline=ratio,
            limit=ratio * (1 - baseline.tolerance),
            now=measured.ratios.get(name),
        )
        for name, ratio in baseline.ratios.items()
    ]
    written = [
        Verdict(
            name=name,
            baseline=number,
            limit=number * (1 + baseline.written_tolerance),
            now=measured.written.get(name),
            less_is_better=True,
        )
        for name, number in baseline.written.items()
    ]
    return ratios + written


def best_of(one: Measured, other: Measured) -> Measured:
    ratios, written = dict(one.ratios), dict(one.written)
    for name, ratio in other.ratios.items():
        ratios[name] = max(ratio, ratios.get(name, 0.0))
    for name, number in other.written.items():
        written[name] = min(number, written.get(name, math.inf))
    return Measured(ratios=ratios, written=written)


def check_in_tries(baseline: Baseline, measure: Measure) -> list[Verdict]:
    """Compare the best of several tries; a value that is good enough is not tried again."""
    best = Measured(ratios={})
    for _ in range(TRIES):
        verdicts = compare_with_baseline(baseline, best)
        again = [one.name.partition(":")[0] for one in verdicts if one.word != "ok"]
        if not again:
            break
        best = best_of(best, measure(list(dict.fromkeys(again))))
    return compare_with_baseline(baseline, best)


def measure_ratios(bench: Bench, names: Sequence[str], folder: Path) -> Measured:
    bench.book = Book()
    bench.allot(TRY_SECONDS)
    things = {name: THINGS[name] for name in names if name in THINGS}
    bench.measure([case for thing in things.values() for case in cases(bench, thing, folder)])
    ratios: dict[str, float] = {}
    written: dict[str, float] = {}
    for name, thing in things.items():
        ours, bare = (
            bench.book.find(NAME, thing.what, engine=engine, store=thing.store)
            for engine in (OURS, FLOOR)
        )
        if ours and bare:
            ratios[name] = max(ours[0].values) / max(bare[0].values)
            written |= {f"{name}:{unit}": n for unit, n in written_in(bare[0].notes).items()}
    return Measured(ratios=ratios, written=written)


def format_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    rows = [
        [
            verdict.name,
            f"{verdict.baseline:.3f}",
            f"{'at most' if verdict.less_is_better else 'at least'} {verdict.limit:.3f}",
            "–" if verdict.now is None else f"{verdict.now:.3f}",
            verdict.word,
        ]
        for verdict in verdicts
    ]
    return grid(["what", "baseline", "bound", "now", ""], rows)


def judge(measure: Measure, path: Path = BASELINE) -> int:
    """Return the exit code: 1 if anything has got worse, 2 if something was not compared."""
    if not path.is_file():
        print(f"there is no {path.name}: python -m bench.harness.guard --write-baseline")
        return 2
    verdicts = check_in_tries(msgspec.json.decode(path.read_bytes(), type=Baseline), measure)
    print("\n".join(format_verdicts(verdicts)))
    if any(verdict.regressed for verdict in verdicts):
        return 1
    return 2 if any(verdict.now is None for verdict in verdicts) else 0


def write(measure: Measure, path: Path = BASELINE) -> int:
    """Write the baseline, or return 2: a baseline of half the ratios would guard only half."""
    best = Measured(ratios={})
    for _ in range(TRIES):
        best = best_of(best, measure(list(THINGS)))
    if missing := sorted(THINGS.keys() - best.ratios.keys()):
        print(f"not written, for these were not measured: {', '.join(missing)}")
        return 2
    path.parent.mkdir(parents=True, exist_ok=True)
    found = Baseline(ratios=_round_values(best.ratios), written=_round_values(best.written))
    path.write_text(json.dumps(msgspec.to_builtins(found), indent=1) + "\n")
    print(f"written: {path.name}")
    return 0


def _round_values(numbers: dict[str, float]) -> dict[str, float]:
    return {name: round(number, 4) for name, number in numbers.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.harness.guard", description=__doc__)
    parser.add_argument("--write-baseline", action="store_true")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each case and try")
    given = parser.parse_args(arguments)
    command.end_on_sigterm()
    begun = time.monotonic()
    with (
        TrialStores() as trial_stores,
        tempfile.TemporaryDirectory(prefix="holdfast-guard-") as folder,
    ):
        bench = Bench(trial_stores, engines.ours(), runs=given.runs, quick=True)
        code = (write if given.write_baseline else judge)(
            lambda names: measure_ratios(bench, names, Path(folder))
        )
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
