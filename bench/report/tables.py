"""Markdown tables of figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.report import pairs
from bench.report.figures import CPU, LOAD, Book, Figure

LABELS = {
    "beside": "small store",  # beside the measure of the large one
    LOAD: "others' load",
}


def table(book: Book, question: str) -> list[str]:
    """All figures of a question: a row for each case, a column for each measure."""
    if question == pairs.QUESTION:
        return pair_table(book)
    figures = [f for f in book if f.question == question and (f.values or f.problems)]
    measures = list(dict.fromkeys((figure.measure, figure.unit) for figure in figures))
    names = list(dict.fromkeys(name for figure in figures for name in figure.case))
    rows: dict[tuple[object, ...], dict[str, Figure]] = {}
    for figure in figures:
        case = tuple(figure.case.get(name, "") for name in names)
        rows.setdefault((*case, figure.who), {})[figure.measure] = figure
    head = [
        "engine",
        "store",
        "settings",
        *names,
        *(f"{_label(m)} {u}" for m, u in measures),
        "runs",
        "notes",
    ]
    ordered = sorted(rows.items(), key=lambda row: tuple(map(_sortable, row[0])))
    return grid(head, [_row(key, found, [m for m, _ in measures]) for key, found in ordered])


def pair_table(book: Book) -> list[str]:
    """Return a row for each pair and measure: units differ too much for a column of each."""
    rows = [
        [
            str(figure.case["pair"]),
            f"{figure.measure}, {figure.unit}",
            *(spread(side.figure) for side in (pair.ours, pair.other)),
            *(_cpu_cell(side) for side in (pair.ours, pair.other)),
            f"{pair.by_rate:.2f}",
            "–" if pair.by_cpu is None else f"{pair.by_cpu:.2f}",
            f"{pair.load:.1f}",
            str(pair.runs),
        ]
        for figure, pair in pairs.list_pairs(book)
    ]
    head = ["pair", "measure", "ours", "other", "µs of ours", "µs of the other"]
    return grid([*head, "ours / other", "by CPU", "others' load", "pairs"], rows)


def _cpu_cell(side: pairs.PairSide) -> str:
    """Return the medians of client and server."""
    known = [statistics.median(values) for values in (side.client, side.server) if values]
    return " + ".join(map(number, known)) or "–"


def _label(measure: str) -> str:
    """Return the head of a column: ``one_client_cpu`` is the client's CPU at the rate of *one*."""
    for side in CPU:
        if measure.endswith(side):
            return f"{measure.removesuffix(side)}{side.removesuffix('_cpu')} CPU".replace("_", " ")
    return LABELS.get(measure, measure)


def _row(key: tuple[object, ...], found: dict[str, Figure], measures: Sequence[str]) -> list[str]:
    *case, _ = key
    who = next(iter(found.values())).who
    notes = [n for f in found.values() for n in (*f.notes, *(f"**{p}**" for p in f.problems))]
    return [
        who.engine,
        who.store,
        who.settings if not who.is_ours else "default settings",
        *map(format_case_value, case),
        *(spread(found[m]) if m in found else "–" for m in measures),
        str(max(len(figure.values) for figure in found.values())),
        "; ".join(notes),
    ]


def format_case_value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def spread(figure: Figure) -> str:
    """The median, and where they differ the least and the most."""
    if not figure.values:
        return "–"
    least, middle, most = min(figure.values), figure.median or 0.0, max(figure.values)
    if least == most:
        return number(middle)
    return f"{number(middle)} ({number(least)}–{number(most)})"


def number(value: float) -> str:
    if value >= 1000:
        return f"{round(value, -2 if value >= 10_000 else -1):,.0f}"
    if value >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _sortable(value: object) -> tuple[int, float, str]:
    if isinstance(value, int):
        return 0, float(value), ""
    return 1, 0.0, str(value)
