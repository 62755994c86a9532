"""Long commands show their progress and the time left, on a terminal and never in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.cli.output.printer import console
from holdfast.domain.phrases import span

Advance = Callable[[int], None]  # receives how many are done by now


def is_watched(*, json: bool) -> bool:
    """Return whether a person watches: on a terminal, and not for JSON."""
    return not json and sys.stderr.isatty()


@contextmanager
def progress(what: str, total: int, *, shown: bool) -> Iterator[Advance]:
    """Show one line with a bar and the time left; it goes away when the work is done."""
    if not shown:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}", style="dim"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        line = bar.add_task(what, total=max(total, 1))
        yield lambda done: bar.update(line, completed=done, total=max(total, done, 1))


class Estimate:
    """Estimates the time left from the speed since the first call."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def time_left(self, now: float, done: int, left: int) -> str:
        """Return how long it still takes, as text; empty as long as that is not known."""
        if self._first is None:
            self._first = now, done
        then, before = self._first
        if left <= 0 or done <= before or now <= then:
            return ""
        return f"about {span((now - then) / (done - before) * left)} left"
