"""The whole benchmark: `python -m bench` (`make bench`).

It asks all questions (or those named with --only), writes bench/results/latest.json and latest.md,
and after a full run docs/performance.md. With --write-docs it only writes the document anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from bench.harness import command, document, report
from bench.harness.paths import RESULTS


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
    _run(command.asked_of(given), questions, write_docs=not (given.quick or given.only))


def _run(asked: command.Asked, questions: Sequence[str], *, write_docs: bool) -> None:
    with command.opened(asked) as (bench, absent):
        begun = time.monotonic()
        command.ask_all(bench, questions)
        found = report.built(bench, absent, seconds=time.monotonic() - begun)
    report.write(found, RESULTS)
    if write_docs:
        document.write(found)
    print("\n".join(report.markdown(found)))


if __name__ == "__main__":
    main()
