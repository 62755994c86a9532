"""Figures: what was measured of whom, in each run, and what went wrong."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

import msgspec

OURS = "holdfast"
CEILING = "ceiling"
LOAD = "load"  # cores that other processes kept busy during a run
CLIENT_CPU, SERVER_CPU = "client_cpu", "server_cpu"
CPU = (CLIENT_CPU, SERVER_CPU)
NODES, BUSIEST_NODE = "nodes_cpu", "busiest_node_cpu"  # of Redis, from submit to end


class Who(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An engine on a store with its settings."""

    engine: str
    store: str
    settings: str = "best"

    @property
    def label(self) -> str:
        return f"{self.engine} {self.store}"

    @property
    def is_ours(self) -> bool:
        return self.engine == OURS


class Figure(msgspec.Struct, kw_only=True):
    """One measure of one case: a value for each run."""

    question: str
    who: Who
    case: dict[str, int | str]  # {"tasks": 10000, "workers": 1}
    measure: str  # "rate"
    unit: str  # "tasks/s"
    values: list[float] = []
    notes: list[str] = []
    problems: list[str] = []

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    def to_dict(self) -> dict[str, object]:
        """Return the figure for the report, with its spread."""
        spread = {}
        if self.values:
            spread = {
                "min": min(self.values),
                "median": statistics.median(self.values),
                "max": max(self.values),
            }
        return {**msgspec.to_builtins(self), "runs": len(self.values), **spread}


class Book:
    """All figures of a run, in the order in which they came first."""

    def __init__(self, figures: list[Figure] | None = None) -> None:
        self._figures: dict[tuple[object, ...], Figure] = {}
        for figure in figures or []:
            self._figures[_key(figure)] = figure

    def __iter__(self) -> Iterator[Figure]:
        return iter(self._figures.values())

    def figure(
        self, question: str, who: Who, case: Mapping[str, int | str], measure: str, unit: str
    ) -> Figure:
        asked = Figure(question=question, who=who, case=dict(case), measure=measure, unit=unit)
        return self._figures.setdefault(_key(asked), asked)

    def find(
        self,
        question: str,
        measure: str = "rate",
        *,
        engine: str | None = None,
        store: str | None = None,
        settings: str | None = "best",
        **case: int | str,
    ) -> list[Figure]:
        """Return the figures that have a value."""
        return [
            figure
            for figure in self
            if figure.question == question
            and figure.measure == measure
            and engine in (None, figure.who.engine)
            and store in (None, figure.who.store)
            and settings in (None, figure.who.settings)
            and figure.values
            and all(figure.case.get(name) == value for name, value in case.items())
        ]


def note_once(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def _key(figure: Figure) -> tuple[object, ...]:
    return figure.question, figure.who, tuple(sorted(figure.case.items())), figure.measure
