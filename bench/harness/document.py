"""`docs/performance.md` and its plots, from the report and from words that people wrote."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from bench.harness import report as reporting
from bench.harness.figures import OURS, Book, Figure
from bench.harness.paths import DOCS
from bench.harness.plots import plots
from bench.harness.tables import number, table

TEMPLATE = Path(__file__).with_name("performance.md.tmpl")
LIMITS = Path(__file__).with_name("limits.toml")
_PLACE = re.compile(r"{{([a-z:]+)}}")
_PICTURE = re.compile(r"!\[[^]]*]\(performance/([a-z]+\.svg)\)\n\n")
_HIGHER_IS_BETTER = ("drain", "submit", "stages")


def write(report: dict[str, Any], docs: Path = DOCS) -> None:
    pictures = plots(reporting.book_of(report))
    folder = docs / "performance"
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        (folder / name).write_text(picture)
    (docs / "performance.md").write_text(text(report, set(pictures)))


def text(report: dict[str, Any], pictures: set[str]) -> str:
    book = reporting.book_of(report)
    limits = tomllib.loads(LIMITS.read_text())
    made = {
        "facts": reporting.facts(report),
        "ratios": reporting.ratio_table(report),
        "settings": reporting.settings_table(report),
        "better": better(book),
        **{name: _table(book, name) for name in reporting.TITLES},
        **{f"limits:{name}": [words] for name, words in limits.items()},
    }
    template = _PICTURE.sub(
        lambda found: found.group() if found.group(1) in pictures else "", TEMPLATE.read_text()
    )
    return _PLACE.sub(lambda found: "\n".join(made[found.group(1)]), template)


def _table(book: Book, question: str) -> list[str]:
    if any(figure.question == question for figure in book):
        return table(book, question)
    return ["Not measured in this run."]


def better(book: Book) -> list[str]:
    """Every case in which a peer, at its best, is ahead of the best of ours; as measured."""
    cases: dict[tuple[object, ...], list[Figure]] = {}
    for figure in book:
        if figure.values and figure.who.settings == "best" and figure.question != "floor":
            case = (figure.question, figure.measure, tuple(sorted(figure.case.items())))
            cases.setdefault(case, []).append(figure)
    lines = [line for found in cases.values() for line in _ahead(found)]
    return lines or ["In no case that both were asked was a peer ahead in this run."]


def _ahead(figures: list[Figure]) -> list[str]:
    ours = [figure for figure in figures if figure.who.engine == OURS]
    if not ours:
        return []
    more = figures[0].question in _HIGHER_IS_BETTER
    sign = 1 if more else -1
    best = max(ours, key=lambda figure: sign * (figure.median or 0.0))
    ahead = [
        figure
        for figure in figures
        if figure.who.engine != OURS and sign * (figure.median or 0.0) > sign * (best.median or 0.0)
    ]
    if not ahead:
        return []
    ahead.sort(key=lambda figure: -sign * (figure.median or 0.0))
    case = ", ".join(f"{name} {value:,}" for name, value in best.case.items())
    names = "; ".join(f"{f.who.label} {number(f.median or 0.0)}" for f in ahead)
    what = f"{best.question}, {best.measure} ({case}), {best.unit}"
    return [f"- {what}: {names} – ours ({best.who.store}) {number(best.median or 0.0)}"]
