"""Has a task become dearer? `python -m bench.harness.guard` (`make check-bench`).

Drains, bulk submits and stages are measured on both stores, and each value is compared with the one
that is committed in `bench/results/baseline.json`:

- calls of Python, commands and bytes of Redis, and rows of SQLite for a task: they are counted, and
  hardly differ from run to run (`bench/harness/counts.py`);
- CPU of client and server for a task, as a multiple of the ceiling's in the same pairs;
- the rate, as a share of the ceiling's, and that of a drain beside repid.

Times differ from machine to machine; how far we are from a fixed case on the same machine in the
same minute differs much less. Where other processes kept more than a core busy, rates are not
judged, and CPU decides. What looks worse is measured again, and only what is worse by more than its
tolerance each time is a regression. `--write-baseline` writes what is measured now.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.harness import command, engines
from bench.harness.bench import Bench
from bench.harness.guard_cases import NAMES, measure_names
from bench.harness.paths import RESULTS
from bench.harness.trial_stores import TrialStores
from bench.report.tables import grid

BASELINE = RESULTS / "baseline.json"
TRIES = 3
WHOLE_SECONDS = 540.0  # then what is not measured stays so
PEER = "repid"
COUNTS, CPU, RATES = "counts", "cpu", "rates"
KINDS = {
    **dict.fromkeys(("calls", "commands", "bytes", "rows"), COUNTS),
    **dict.fromkeys(("client_cpu", "server_cpu", "cpu"), CPU),
    "rate": RATES,
}
TOLERANCES = {COUNTS: 0.03, CPU: 0.10, RATES: 0.30}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Measured values by name, and the rates that say nothing because others kept us busy."""

    values: dict[str, float]
    disturbed: frozenset[str] = frozenset()


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    tolerances: dict[str, float] = msgspec.field(default_factory=TOLERANCES.copy)
    values: dict[str, float]


Measure = Callable[[Sequence[str]], Measured]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    baseline: float
    limit: float
    now: float | None
    disturbed: bool = False

    @property
    def less_is_better(self) -> bool:
        return kind_of(self.name) != RATES

    @property
    def regressed(self) -> bool:
        if self.now is None or self.disturbed:
            return False
        return self.now > self.limit if self.less_is_better else self.now < self.limit

    @property
    def word(self) -> str:
        if self.disturbed:
            return "ok, by CPU"
        if self.now is None:
            return "NOT MEASURED"
        return "REGRESSION" if self.regressed else "ok"


def kind_of(name: str) -> str:
    """Return the kind of a value: ``drain_redis:calls`` is a count."""
    return KINDS[name.partition(":")[2]]


def compare_with_baseline(baseline: Baseline, measured: Measured) -> list[Verdict]:
    found = []
    for name, value in baseline.values.items():
        kind = kind_of(name)
        sign = -1 if kind == RATES else 1
        verdict = Verdict(
            name=name,
            baseline=value,
            limit=value * (1 + sign * baseline.tolerances[kind]),
            now=measured.values.get(name),
            disturbed=name in measured.disturbed,
        )
        found.append(verdict)
    return found


def best_of(one: Measured, other: Measured) -> Measured:
    """Return the best of each value; a rate is disturbed if it was so each time."""
    values = dict(one.values)
    for name, value in other.values.items():
        choose = max if kind_of(name) == RATES else min
        values[name] = choose(value, values.get(name, value))
    disturbed = frozenset(
        name
        for name in one.disturbed | other.disturbed
        if all(name in each.disturbed or name not in each.values for each in (one, other))
    )
    return Measured(values=values, disturbed=disturbed)


def check_in_tries(baseline: Baseline, measure: Measure) -> list[Verdict]:
    """Compare the best of several tries; a value that is good enough is not tried again."""
    best = Measured(values={})
    for _ in range(TRIES):
        verdicts = compare_with_baseline(baseline, best)
        again = [one.name for one in verdicts if not one.word.startswith("ok")]
        if not again:
            break
        best = best_of(best, measure(again))
    return compare_with_baseline(baseline, best)


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
    return 2 if any(verdict.word == "NOT MEASURED" for verdict in verdicts) else 0


def write(measure: Measure, path: Path = BASELINE) -> int:
    """Write the baseline, or return 2: a baseline of half the values would guard only half."""
    found = measure(NAMES)
    if missing := sorted(set(NAMES) - found.values.keys()):
        print(f"not written, for these were not measured: {', '.join(missing)}")
        return 2
    path.parent.mkdir(parents=True, exist_ok=True)
    baseline = Baseline(values={name: round(found.values[name], 4) for name in NAMES})
    path.write_text(json.dumps(msgspec.to_builtins(baseline), indent=1) + "\n")
    print(f"written: {path.name}")
    if found.disturbed:
        print("written on a busy machine: measure again when it is quiet", file=sys.stderr)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.harness.guard", description=__doc__)
    parser.add_argument("--write-baseline", action="store_true")
    given = parser.parse_args(arguments)
    command.end_on_sigterm()
    begun = time.monotonic()
    peers, absent = engines.peers([PEER])
    for name, reason in absent.items():
        print(f"  {name} takes no part: {reason}", file=sys.stderr, flush=True)
    with TrialStores() as trial_stores:
        bench = Bench(
            trial_stores,
            engines.ours(),
            peers,
            ceiling=engines.ceiling(),
            quick=True,
            seconds=WHOLE_SECONDS,
        )

        def measure(names: Sequence[str]) -> Measured:
            values, disturbed = measure_names(bench, names)
            return Measured(values=values, disturbed=frozenset(disturbed))

        code = (write if given.write_baseline else judge)(measure)
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
