"""Ratios of pairs: their median, by rate or by CPU.

Both sides of a pair ran back to back, so the ratio of each pair is taken before the median. If
other processes kept more than one core busy meanwhile, rates say more about them than about
either side. Then the ratio of CPU decides: what the other uses for a task, client and server
together, to what ours uses.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from bench.report.figures import CPU, LOAD, Book, Figure

QUESTION = "pairs"
LOAD_MAX = 1.0  # cores
BY_RATE, BY_TIME, BY_CPU = "rate", "time", "CPU"


class PairSide(msgspec.Struct, frozen=True, kw_only=True):
    """A side of a pair: a value for each run, and the CPU of client and server beside it."""

    figure: Figure
    client: Sequence[float] = ()
    server: Sequence[float] = ()
    load: Sequence[float] = ()

    @property
    def cpu(self) -> list[float]:
        """Return the CPU of both sides of the wire, for each run; nothing if it is not known."""
        if self.client and self.server:
            return [sum(both) for both in zip(self.client, self.server, strict=True)]
        return list(self.client or self.server)


class FoundPair(msgspec.Struct, frozen=True, kw_only=True):
    ours: PairSide
    other: PairSide
    less_is_better: bool = False

    @property
    def runs(self) -> int:
        return min(len(self.ours.figure.values), len(self.other.figure.values))

    @property
    def load(self) -> float:
        """Return the median load of the runs, of each the worse of its two sides."""
        both = zip(self.ours.load, self.other.load, strict=False)
        return statistics.median([max(one) for one in both] or [0.0])

    @property
    def by_rate(self) -> float:
        ours, other = self.ours.figure.values, self.other.figure.values
        return median_ratio(other, ours) if self.less_is_better else median_ratio(ours, other)

    @property
    def by_cpu(self) -> float | None:
        ours, other = self.ours.cpu, self.other.cpu
        return median_ratio(other, ours) if ours and other else None

    @property
    def _is_left_to_cpu(self) -> bool:
        return self.load > LOAD_MAX and self.by_cpu is not None

    @property
    def decided_by(self) -> str:
        return BY_CPU if self._is_left_to_cpu else what_decides(less_is_better=self.less_is_better)

    @property
    def value(self) -> float:
        return (self.by_cpu if self._is_left_to_cpu else None) or self.by_rate

    @property
    def note(self) -> str:
        """Return how many pairs there were, and what did not decide."""
        said = [f"{self.runs} {'pair' if self.runs == 1 else 'pairs'}"]
        if self.load > LOAD_MAX:
            said.append(f"others kept {self.load:.1f} cores busy")
        if self._is_left_to_cpu:
            said.append(f"by rate {self.by_rate:.2f}")
        elif self.by_cpu is not None:
            said.append(f"by CPU {self.by_cpu:.2f}")
        return ", ".join(said)


def what_decides(*, less_is_better: bool) -> str:
    """Return the word for a measure of which less, or more, is better."""
    return BY_TIME if less_is_better else BY_RATE


def median_ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the median of the ratios of values that were measured in turn."""
    return statistics.median([one / other for one, other in zip(first, second, strict=False)])


def find_pairs(
    book: Book, what: str, measure: str = "rate", *, store: str, less_is_better: bool = False
) -> list[FoundPair]:
    """Return the pairs of this kind in which ours ran on this store."""
    return [
        _pair(book, figure, other, less_is_better=less_is_better)
        for figure, other in _both_sides(book)
        if figure.measure == measure
        and figure.who.store == store
        and str(figure.case["pair"]).startswith(f"{what}: ")
    ]


def list_pairs(book: Book) -> list[tuple[Figure, FoundPair]]:
    """Return all pairs, each with the figure of ours."""
    return [
        (figure, _pair(book, figure, other, less_is_better=figure.unit == "ms"))
        for figure, other in _both_sides(book)
    ]


def _both_sides(book: Book) -> Iterator[tuple[Figure, Figure]]:
    """Yield what was measured on both sides of a pair, without the CPU and the load beside it."""
    for figure in book:
        beside = figure.measure == LOAD or figure.measure.endswith(CPU)
        if figure.question != QUESTION or figure.case["side"] != "ours" or beside:
            continue
        for other in book:
            if figure.values and other.values and _is_other_side(figure, other):
                yield figure, other


def _is_other_side(ours: Figure, other: Figure) -> bool:
    wanted = {**ours.case, "side": "other"}
    return other.question == QUESTION and other.measure == ours.measure and other.case == wanted


def _pair(book: Book, ours: Figure, other: Figure, *, less_is_better: bool) -> FoundPair:
    return FoundPair(
        ours=_side(book, ours), other=_side(book, other), less_is_better=less_is_better
    )


def median_cpu(book: Book, figure: Figure) -> dict[str, float]:
    """Return the median CPU of client and server beside a rate, as far as it is known."""
    found = {side: _values(book, figure, cpu_measure(figure.measure, side)) for side in CPU}
    return {side: statistics.median(values) for side, values in found.items() if values}


def cpu_measure(measure: str, side: str) -> str:
    """Return the measure with the CPU that was used at this rate."""
    return side if measure == "rate" else f"{measure}_{side}"


def _side(book: Book, figure: Figure) -> PairSide:
    client, server = (_values(book, figure, cpu_measure(figure.measure, side)) for side in CPU)
    return PairSide(figure=figure, client=client, server=server, load=_values(book, figure, LOAD))


def _values(book: Book, figure: Figure, measure: str) -> list[float]:
    found = book.find(
        figure.question,
        measure,
        engine=figure.who.engine,
        store=figure.who.store,
        settings=figure.who.settings,
    )
    return next((one.values for one in found if one.case == figure.case), [])
