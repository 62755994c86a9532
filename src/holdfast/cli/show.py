"""Printing: tables that fit the terminal, JSON that machines can rely on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.app.phrases import span
from holdfast.cli.plain import plain, plain_json, plain_line
from holdfast.domain.envelope import iso
from holdfast.domain.state import SETTLED, SUSPENDED, Status

GAP = 2
PIPE_WIDTH = 500  # nobody reads a pipe by columns: drop and cut nothing
CELL_LIMIT = 200

Cell = str | Text
Row = Mapping[str, Cell]


def console(*, stderr: bool = False) -> Console:
    """Without colour when nobody looks or NO_COLOR is set: Rich sees to that."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def say(text: Cell = "", *, style: str | None = None) -> None:
    shown = Text(plain(text)) if isinstance(text, str) else text
    console().print(shown, style=style, soft_wrap=True)


def prose(text: str) -> None:
    """Sentences: broken between words where somebody reads them."""
    target = console()
    target.print(Text(plain(text)), soft_wrap=target.width == PIPE_WIDTH)


def hint(text: str) -> None:
    """A word beside the answer; it must not end up in a pipe."""
    console(stderr=True).print(Text(plain(text)), style="dim", soft_wrap=True)


def print_json(value: Any) -> None:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print(plain_json(body))


def print_table(rows: Sequence[Row], *, keep: int) -> None:
    """The columns of the rows, in order. What does not fit is left out from the right, but for
    the first ``keep`` columns; ids and the like are never cut."""
    if not rows:
        return
    target = console()
    shown = [{name: _cell(value) for name, value in row.items()} for row in rows]
    columns = _fitting(shown, keep, target.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=_least(name, shown))
    for row in shown:
        table.add_row(*(row[name] for name in columns))
    target.print(table)


def _fitting(rows: Sequence[Mapping[str, Text]], keep: int, width: int) -> list[str]:
    columns: list[str] = []
    used = 0
    for name in rows[0]:
        natural = max(cell_len(name), *(cell_len(row[name].plain) for row in rows))
        if len(columns) >= keep and used + natural > width:
            continue
        columns.append(name)
        used += natural + GAP
    return columns


def _least(name: str, rows: Sequence[Mapping[str, Text]]) -> int | None:
    """An id is there to be copied."""
    if name != "ID":
        return None
    return max(cell_len(row[name].plain) for row in rows)


def _cell(value: Cell) -> Text:
    if isinstance(value, Text):
        return value
    line = plain_line(value)
    return Text(line if len(line) <= CELL_LIMIT else line[: CELL_LIMIT - 1] + "…")


def print_fields(fields: Mapping[str, Cell | None]) -> None:
    """Name and value, one per line; what is empty is left out."""
    given = {name: value for name, value in fields.items() if value}
    wide = max(map(len, given), default=0)
    for name, value in given.items():
        line = Text(f"{name:<{wide}}  ", style="dim")
        say(line + (value if isinstance(value, Text) else Text(plain_line(value), style="")))


_STYLES = {Status.RUNNING: "cyan", Status.ROLLING_BACK: "cyan", Status.COMPLETED: "green"}


def status_text(status: Status) -> Text:
    if status in SUSPENDED:
        return Text(status.value, style="bold red")
    resting = "" if status in SETTLED or status is Status.PENDING else "yellow"
    return Text(status.value, style=_STYLES.get(status, resting))


def at(moment: float | None) -> str | None:
    return None if moment is None else iso(moment)


def since(moment: float, now: float) -> str:
    """``3m20s ago (2026-01-31T12:00:00.000+00:00)``"""
    return f"{span(now - moment)} ago ({iso(moment)})"
