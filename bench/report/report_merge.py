"""Some questions asked again: their answers take the place of the old ones in the report.

Whatever else stands there stays as it was, with the day on which it was measured. A ratio compares
figures of one question only, so none has one side of today and another of last month.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report import ratios, report
from bench.report.figures import Book


def answered_questions(found: dict[str, Any], questions: Sequence[str]) -> list[str]:
    """Return the questions that have a figure."""
    there = {figure.question for figure in report.book_of(found) if figure.values}
    return [name for name in questions if name in there]


def merge(old: dict[str, Any], new: dict[str, Any], questions: Sequence[str]) -> dict[str, Any]:
    """Return ``old`` with the answers of ``new`` to these questions; the others stay."""
    taken = answered_questions(new, questions)
    figures = [one for one in old["figures"] if one["question"] not in taken]
    figures += [one for one in new["figures"] if one["question"] in taken]
    whole = {
        **old,
        "engines": old["engines"] | new["engines"],
        "questions": _measurement_facts(old) | {name: new["questions"][name] for name in taken},
        "figures": figures,
    }
    book: Book = report.book_of(whole)
    return {**whole, "ratios": ratios.by_name(ratios.ratios(book))}


def _measurement_facts(old: dict[str, Any]) -> dict[str, Any]:
    """Return date and machine for each question; an old report has only those of the whole."""
    asked = {one["question"] for one in old["figures"]}
    at_once = {"measured_at": old["taken_at"], "commit": None}
    return {name: old.get("questions", {}).get(name, at_once) for name in sorted(asked)}
