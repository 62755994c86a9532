"""The summary of a report is small enough for git, and all pages are rendered from it.

A report repeats for each figure who was measured and how; the summary has one line for each case,
and values of eight digits, which a page rounds as it would the whole ones. The reader gets a
report again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.report.figures import Book, Figure, Who

DIGITS = 8


def write(report: dict[str, Any], folder: Path) -> None:
    """Write summary.json, one line for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    head = {name: value for name, value in report.items() if name != "figures"}
    cases = ",\n".join(f"  {_line(case)}" for case in _cases(report["figures"]))
    parts = [f" {_line(name)}: {_line(value)}" for name, value in head.items()]
    text = "{\n" + ",\n".join([*parts, f' "cases": [\n{cases}\n ]']) + "\n}\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    """Return the report that the summary in this folder was made of, its values rounded."""
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    cases = found.pop("cases")
    figures = Book([figure for case in cases for figure in _figures(case)])
    return {**found, "figures": [figure.to_dict() for figure in figures]}


def exists(folder: Path) -> bool:
    return (folder / "summary.json").is_file()


def _cases(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures of one case together, in the order in which the first of each came."""
    cases: dict[str, dict[str, Any]] = {}
    for figure in figures:
        who = [figure["who"][name] for name in ("engine", "store", "settings")]
        case = {"of": [figure["question"], *who], "case": figure["case"]}
        there = cases.setdefault(json.dumps(case, sort_keys=True), {**case, "measures": []})
        values = [_round(value) for value in figure["values"]]
        remarks = (figure["notes"], figure["problems"])
        there["measures"].append(
            [figure["measure"], figure["unit"], values, *(remarks if any(remarks) else ())]
        )
    return list(cases.values())


def _figures(case: dict[str, Any]) -> list[Figure]:
    question, engine, store, settings = case["of"]
    return [
        Figure(
            question=question,
            who=Who(engine=engine, store=store, settings=settings),
            case=case["case"],
            measure=measure,
            unit=unit,
            values=[float(value) for value in values],
            notes=remarks[0] if remarks else [],
            problems=remarks[1] if remarks else [],
        )
        for measure, unit, values, *remarks in case["measures"]
    ]


def _round(value: float) -> float:
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded == int(rounded) else rounded


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
