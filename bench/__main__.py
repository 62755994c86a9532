"""The whole benchmark: `python -m bench` (`make bench`).

It asks all questions (or those named with --only). A full run (everything, at least three times)
writes bench/results/summary.json and docs/performance.md, and beside them latest.json and latest.md
with every value, which git ignores. With --only, and otherwise full, the answers take their places
in the summary, and nothing else of it changes. Any other run writes quick.json and quick.md. While
it runs, unfinished.json has the figures so far. With --write-docs it only renders the pages anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import command, plan
from bench.harness.paths import DOCS, RESULTS, ROOT
from bench.report import document, report, report_merge, summary


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    command.add_options(parser)
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(command.QUESTIONS)}")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="only render docs/performance.md and the goals from the report",
    )
    given = parser.parse_args(arguments)
    if given.write_docs:
        document.write(summary.read(RESULTS))
        return
    questions = given.only.split(",") if given.only else list(command.QUESTIONS)
    if unknown := sorted(set(questions) - set(command.QUESTIONS)):
        parser.error(f"no such question: {', '.join(unknown)}")
    command.end_on_sigterm()
    _run(command.run_options(given), questions)


def _run(options: command.RunOptions, questions: Sequence[str]) -> None:
    full = options.is_full and set(questions) == set(command.QUESTIONS)
    with command.open_bench(options, questions) as (bench, absent):
        begun = time.monotonic()

        def build_report() -> dict[str, Any]:
            return report.build(bench, absent, seconds=time.monotonic() - begun, full=full)

        parts = plan.plan_parts(bench, questions)
        plan.carry_out(bench, parts, lambda: report.write(build_report(), RESULTS, "unfinished"))
        found = build_report()
    name = publish(found, questions, options)
    report.remove(RESULTS, "unfinished")
    print("\n".join(report.markdown(found)))
    print(f"written: {RESULTS.relative_to(ROOT) / name}.json", file=sys.stderr)


def publish(
    found: dict[str, Any],
    questions: Sequence[str],
    options: command.RunOptions,
    *,
    results: Path = RESULTS,
    docs: Path = DOCS,
) -> str:
    """Write the report under the name that the run has earned, and return that name."""
    if not options.is_full or not (found["full"] or summary.exists(results)):
        report.write(found, results, "quick")
        return "quick"
    whole = found if found["full"] else report_merge.merge(summary.read(results), found, questions)
    report.write(whole, results)
    summary.write(whole, results)
    document.write(summary.read(results), docs)
    return "latest"


if __name__ == "__main__":
    main()
