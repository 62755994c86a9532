"""Renders the pages about performance and capacity, plots and goals, from report and templates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from bench.harness.paths import DOCS
from bench.report import capacity
from bench.report import report as report_parts
from bench.report.figures import CPU, LOAD, OURS, Book, Figure
from bench.report.plots import plots
from bench.report.ratios import FEW
from bench.report.tables import format_case_value, number, table

TEMPLATE = Path(__file__).with_name("performance.md.tmpl")
CAPACITY = Path(__file__).with_name("capacity.md.tmpl")
GOALS = Path(__file__).with_name("goals.md.tmpl")
LIMITS = Path(__file__).with_name("limits.toml")
_PLACE = re.compile(r"{{([a-z:]+)}}")
_PICTURE = re.compile(r"!\[[^]]*]\(performance/([a-z]+\.svg)\)\n\n")
_NO_MERIT = ("in_flight", LOAD)  # neither more nor less of it is better
_WITHOUT_PEERS = ("pairs", "capacity")  # whose rows are no peers of each other
_HIGHER_IS_BETTER = ("drain", "submit", "stages")


def write(report: dict[str, Any], docs: Path = DOCS) -> None:
    pictures = plots(report_parts.book_of(report))
    folder = docs / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        (folder / name).write_text(picture)
    (docs / "performance.md").write_text(text(report, set(pictures)))
    (docs / "capacity.md").write_text(capacity_page(report))
    internals = docs / "internals"
    internals.mkdir(exist_ok=True)
    (internals / "benchmark-goals.md").write_text(goals(report))


def text(report: dict[str, Any], pictures: set[str]) -> str:
    book = report_parts.book_of(report)
    limits = tomllib.loads(LIMITS.read_text())
    made = {
        "facts": report_parts.facts(report),
        "ratios": report_parts.ratio_table(report),
        "settings": report_parts.settings_table(report),
        "better": better(book),
        **{name: _table(report, book, name) for name in report_parts.TITLES},
        **{f"limits:{name}": [words] for name, words in limits.items()},
    }
    template = _PICTURE.sub(
        lambda found: found.group() if found.group(1) in pictures else "", TEMPLATE.read_text()
    )
    return _fill(template, made)


def goals(report: dict[str, Any]) -> str:
    """Return the page that compares the ratios with their goals."""
    made = {"facts": report_parts.facts(report), "goals": report_parts.goal_table(report)}
    return _fill(GOALS.read_text(), made)


def capacity_page(report: dict[str, Any]) -> str:
    """Return the page about the cores and partitions that a load needs."""
    book = report_parts.book_of(report)
    made = {
        "facts": capacity.run_facts(report),
        "cores": capacity.core_table(book),
        "service": capacity.service_lines(book),
        "loads": capacity.load_table(book),
        "partitions": capacity.partition_lines(book),
    }
    return _fill(CAPACITY.read_text(), made)


def _fill(template: str, made: dict[str, list[str]]) -> str:
    return _PLACE.sub(lambda found: "\n".join(made[found.group(1)]), template)


def _table(report: dict[str, Any], book: Book, question: str) -> list[str]:
    if any(figure.question == question for figure in book):
        return [*table(book, question), "", report_parts.format_measured_at(report, question)]
    return ["Not measured in this run."]


def better(book: Book) -> list[str]:
    """Return a table of the cases in which a peer, with either of its settings, is ahead of ours.

    Ours runs on the store of the peer; a peer on PostgreSQL is compared with ours on Redis.
    """
    cases: dict[tuple[object, ...], list[Figure]] = {}
    for figure in book:
        if figure.values and figure.question not in _WITHOUT_PEERS and _has_merit(figure):
            cases.setdefault((*_case_key(figure), _kind(figure)), []).append(figure)
    lines = [line for found in cases.values() for line in _ahead(found)]
    if not lines:
        return ["No peer was ahead of ours in this run."]
    return ["| case | peers that were ahead | ours |", "|---|---|---|", *lines]


def _has_merit(figure: Figure) -> bool:
    return figure.measure not in _NO_MERIT and not figure.measure.endswith(CPU)


def _case_key(figure: Figure) -> tuple[object, ...]:
    """Return what was asked, without the smaller amounts that slow engines get."""
    case = {name: value for name, value in figure.case.items() if name != "samples"}
    if "tasks" in case:
        case["tasks"] = max(FEW, int(case["tasks"]))
    return figure.question, figure.measure, tuple(sorted(case.items()))


def _kind(figure: Figure) -> str:
    return "file" if figure.who.store == "sqlite" else "server"


def _ahead(figures: list[Figure]) -> list[str]:
    ours = [figure for figure in figures if figure.who.engine == OURS]
    if not ours:
        return []
    own = ours[0]
    sign = 1 if own.question in _HIGHER_IS_BETTER else -1
    ahead = [
        figure
        for figure in figures
        if figure.who.engine != OURS and sign * (figure.median or 0.0) > sign * (own.median or 0.0)
    ]
    if not ahead:
        return []
    ahead.sort(key=lambda figure: -sign * (figure.median or 0.0))
    case = ", ".join(f"{name} {format_case_value(value)}" for name, value in own.case.items())
    names = "; ".join(f"{f.who.label} ({f.who.settings}) {number(f.median or 0.0)}" for f in ahead)
    what = f"{own.question}, {own.measure}{f' ({case})' if case else ''}, {own.unit}"
    return [f"| {what} | {names} | {own.who.store} {number(own.median or 0.0)} |"]
