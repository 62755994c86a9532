"""The whole benchmark: `python -m bench` (`make bench`).

It asks all questions (or those named with --only). A full run (everything, at least three times)
writes bench/results/latest.json, latest.md and docs/performance.md; any other run quick.json and
quick.md. Meanwhile what is there so far stands in unfinished.json. With --write-docs it only writes
the document anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.harness import command, document, plan, report
from bench.harness.paths import RESULTS, ROOT


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    command.add_options(parser)
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(command.QUESTIONS)}")
    parser.add_argument(
        "--write-docs", action="store_true", help="only write docs/performance.md from the report"
    )
    given = parser.parse_args(arguments)
    if given.write_docs:
        document.write(report.read(RESULTS / "latest.json"))
        return
    questions = given.only.split(",") if given.only else list(command.QUESTIONS)
    if unknown := sorted(set(questions) - set(command.QUESTIONS)):
        parser.error(f"no such question: {', '.join(unknown)}")
    command.end_on_sigterm()
    asked = command.asked_of(given)
    full = asked.is_full and not given.only
    _run(asked, questions, full=full)


def _run(asked: command.Asked, questions: Sequence[str], *, full: bool) -> None:
    with command.opened(asked) as (bench, absent):
        begun = time.monotonic()

        def built() -> dict[str, Any]:
            return report.built(bench, absent, seconds=time.monotonic() - begun, full=full)

        parts = plan.planned(bench, questions)
        plan.carry_out(bench, parts, lambda: report.write(built(), RESULTS, "unfinished"))
        found = built()
    name = "latest" if full else "quick"
    report.write(found, RESULTS, name)
    report.remove(RESULTS, "unfinished")
    if full:
        document.write(found)
    print("\n".join(report.markdown(found)))
    print(f"written: {RESULTS.relative_to(ROOT) / name}.json", file=sys.stderr)


if __name__ == "__main__":
    main()
