"""Has a ratio of ours to the floor got worse? `python -m bench.harness.guard` (`make check-bench`).

Times differ from machine to machine, and so do rates; how far we are from the bare writes on the
same machine in the same minute differs much less. Of both sides the best run counts: neighbours
make a run slow, hardly ever fast. Each ratio is compared with the one that is committed in
`bench/results/baseline.json`. What looks worse is measured again, and only what is worse by more
than the tolerance each time is a regression. `--write-baseline` writes what is measured now.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.harness import command, engines
from bench.harness.bench import Bench
from bench.harness.figures import FLOOR, OURS, Book
from bench.harness.paths import RESULTS
from bench.harness.places import Places
from bench.harness.tables import grid
from bench.questions.floor import NAME, STORES, WHATS, Thing, cases

BASELINE = RESULTS / "baseline.json"
TOLERANCE = 0.30  # neighbours on a shared machine cost one side up to a fifth now and then
RUNS = 2
TRIES = 3
SECONDS = 100.0
TASKS, WORKFLOWS = 5_000, 500
THINGS = {
    f"{what}_{store}_vs_floor": Thing(what=what, store=store, tasks=TASKS, workflows=WORKFLOWS)
    for what in WHATS
    for store in STORES
}

Measure = Callable[[Sequence[str]], Mapping[str, float]]  # by name


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    baseline: float
    now: float | None

    @property
    def least(self) -> float:
        return self.baseline * (1 - TOLERANCE)

    @property
    def regressed(self) -> bool:
        return self.now is None or self.now < self.least


def judged(baseline: Mapping[str, float], measured: Mapping[str, float]) -> list[Verdict]:
    return [
        Verdict(name=name, baseline=ratio, now=measured.get(name))
        for name, ratio in baseline.items()
    ]


def checked(baseline: Mapping[str, float], measure: Measure) -> list[Verdict]:
    """The best of the tries counts; what is good enough is not tried again."""
    best: dict[str, float] = {}
    for _ in range(TRIES):
        wanted = [verdict.name for verdict in judged(baseline, best) if verdict.regressed]
        if not wanted:
            break
        for name, ratio in measure(wanted).items():
            best[name] = max(ratio, best.get(name, 0.0))
    return judged(baseline, best)


def measured(bench: Bench, names: Sequence[str], folder: Path) -> dict[str, float]:
    bench.book = Book()
    things = {name: THINGS[name] for name in names if name in THINGS}
    bench.measure([case for thing in things.values() for case in cases(bench, thing, folder)])
    found = {name: _ratio(bench.book, thing) for name, thing in things.items()}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def _ratio(book: Book, thing: Thing) -> float | None:
    ours, bare = (
        book.find(NAME, thing.what, engine=engine, store=thing.store) for engine in (OURS, FLOOR)
    )
    return max(ours[0].values) / max(bare[0].values) if ours and bare else None


def told(verdicts: Sequence[Verdict]) -> list[str]:
    rows = [
        [
            verdict.name,
            f"{verdict.baseline:.3f}",
            f"{verdict.least:.3f}",
            "not measured" if verdict.now is None else f"{verdict.now:.3f}",
            "REGRESSION" if verdict.regressed else "ok",
        ]
        for verdict in verdicts
    ]
    return grid(["ratio", "baseline", f"least (−{TOLERANCE:.0%})", "now", ""], rows)


def judge(measure: Measure, baseline: Path = BASELINE) -> int:
    """The exit code: 1 if anything has got worse, 2 if there is nothing to compare with."""
    if not baseline.is_file():
        print(f"there is no {baseline.name}: python -m bench.harness.guard --write-baseline")
        return 2
    verdicts = checked(json.loads(baseline.read_text())["ratios"], measure)
    print("\n".join(told(verdicts)))
    return int(any(verdict.regressed for verdict in verdicts))


def write(measure: Measure, baseline: Path = BASELINE) -> int:
    """2 if not everything could be measured: half a baseline would guard half."""
    found = measure(list(THINGS))
    if missing := sorted(THINGS.keys() - found.keys()):
        print(f"not written, for these were not measured: {', '.join(missing)}")
        return 2
    baseline.parent.mkdir(parents=True, exist_ok=True)
    ratios = {name: round(ratio, 4) for name, ratio in found.items()}
    baseline.write_text(json.dumps({"tolerance": TOLERANCE, "ratios": ratios}, indent=1) + "\n")
    print(f"written: {baseline.name}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.harness.guard", description=__doc__)
    parser.add_argument("--write-baseline", action="store_true")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each case and try")
    given = parser.parse_args(arguments)
    command.end_on_sigterm()
    begun = time.monotonic()
    with Places() as places, tempfile.TemporaryDirectory(prefix="holdfast-guard-") as folder:
        seconds = math.inf if given.write_baseline else SECONDS
        bench = Bench(places, engines.ours(), runs=given.runs, quick=True, seconds=seconds)
        code = (write if given.write_baseline else judge)(
            lambda names: measured(bench, names, Path(folder))
        )
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
