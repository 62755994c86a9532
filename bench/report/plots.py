"""The plots: the figures that are drawn, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.report import svg
from bench.report.figures import OURS, Book, Figure


def plots(book: Book) -> dict[str, str]:
    """Return the plots of what was measured, by file name."""
    drawn = {name: draw(book) for name, draw in _DRAWN.items()}
    return {f"{name}.svg": picture for name, picture in drawn.items() if picture}


def _drain(book: Book) -> str | None:
    found = book.find("drain", tasks=10_000, workers=1, tenants=0)
    return _bars("Draining 10 000 no-op tasks, one worker process", "tasks/s", found)


def _latency(book: Book) -> str | None:
    found = book.find("latency", "start_p50")
    title = "From submit to start on an idle system, median"
    return _bars(title, "ms (logarithmic; shorter is better)", found, less_is_better=True, log=True)


def _stages(book: Book) -> str | None:
    found = book.find("stages", stages=5, at_once=50)
    title = "Stages committed, workflows of five, fifty at once"
    return _bars(title, "stages/s (logarithmic)", found, log=True)


def _bars(
    title: str,
    axis: str,
    figures: Sequence[Figure],
    *,
    less_is_better: bool = False,
    log: bool = False,
) -> str | None:
    if not figures:
        return None
    rows = [
        svg.Bar(
            label=figure.who.label,
            value=figure.median or 0.0,
            least=min(figure.values),
            most=max(figure.values),
            ours=figure.who.is_ours,
        )
        for figure in figures
    ]
    rows.sort(key=lambda bar: bar.value, reverse=not less_is_better)
    return svg.bars(title, axis, rows, log=log)


def _growth(book: Book) -> str | None:
    series = []
    for store in ("redis", "sqlite"):
        for measure, label in (("rate", "that many wait"), ("beside", "1 000 wait")):
            found = book.find("growth", measure, engine=OURS, store=store)
            many = [f for f in found if "waiting" in f.case]
            points = [(float(f.case["waiting"]), f.median or 0.0) for f in many]
            if points:
                line = svg.Line(
                    label=f"{store}, {label}", points=sorted(points), dashed=measure == "beside"
                )
                series.append(line)
    title = "Claim and finish, by the number of waiting tasks"
    return svg.lines(title, "waiting tasks (logarithmic)", "tasks/s", series) if series else None


_DRAWN: dict[str, Callable[[Book], str | None]] = {
    "drain": _drain,
    "latency": _latency,
    "stages": _stages,
    "growth": _growth,
}
