"""Printing: tables that fit the terminal, JSON that machines can rely on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.domain.phrases import span
from holdfast.domain.plain import plain_json, plain_line
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.state import SETTLED, SUSPENDED, Status

GAP = 2
SHRUNK_CHARS = 20  # of a column that may shrink, before the next is shown beside it
SAYS: Mapping[str, int] = {"SAYS": SHRUNK_CHARS}  # what an error says
PIPE_WIDTH = 500  # nobody reads a pipe by columns: drop and cut nothing
CELL_LIMIT = 200

Cell = str | Text
Row = Mapping[str, Cell]


def console(*, stderr: bool = False) -> Console:
    """Return the console; Rich drops colours for NO_COLOR and for pipes."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def say(text: Cell = "", *, style: str | None = None) -> None:
    """Print one line, whatever the text contains."""
    shown = Text(plain_line(text)) if isinstance(text, str) else text
    console().print(shown, style=style, soft_wrap=True)


def prose(text: str) -> None:
    """Sentences: broken between words where somebody reads them, and nowhere else."""
    target = console()
    target.print(Text(plain_line(text)), soft_wrap=target.width == PIPE_WIDTH)


def item(label: str, text: Cell, *, style: str | None = None, label_style: str = "") -> None:
    """A line of a list. Where somebody reads it, it goes on below itself, not below its label;
    no word is cut: it may be there to be copied."""
    target, head = console(), Text(f"{label}  ", style=label_style)
    lines: Sequence[Cell] = [text]
    if isinstance(text, str):
        lines = [plain_line(text)]
        if target.width != PIPE_WIDTH:
            lines = _folded(plain_line(text), target.width - head.cell_len)
    for number, line in enumerate(lines):
        before = Text(" " * head.cell_len) if number else head
        target.print(before + Text("").append(line), style=style, soft_wrap=True)


def _folded(text: str, width: int) -> list[str]:
    """Ours, as Rich's own folding cuts words that are too long."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def hint(text: str) -> None:
    """A word beside the answer; it must not end up in a pipe."""
    console(stderr=True).print(Text(plain_line(text)), style="dim", soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    said = Text(plain_line(f"warning: {text}"))
    console(stderr=True).print(said, style="yellow", soft_wrap=True)


def print_json(value: Any) -> None:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print(plain_json(body))


def print_table(
    rows: Sequence[Row],
    *,
    keep: int,
    shrinks: Mapping[str, int] = SAYS,
    room: Sequence[str] = (),
) -> None:
    """The columns of the rows, in order. What does not fit is left out from the right, but for
    the first ``keep`` columns, and named in a hint; ids and the like are never cut. Those
    that may shrink are cut short, down to so many characters, rather than left out.

    ``room``: all columns, in the order in which they get room, where that is another."""
    if not rows:
        return
    target = console()
    table, left_out = table_of(rows, keep=keep, width=target.width, shrinks=shrinks, room=room)
    target.print(table)
    if left_out:
        hint(f"no room for {', '.join(left_out)}: a wider terminal or --json has all")


def table_of(
    rows: Sequence[Row],
    *,
    keep: int,
    width: int,
    shrinks: Mapping[str, int] = SAYS,
    room: Sequence[str] = (),
) -> tuple[Table, list[str]]:
    """Return the table, and the names of the columns that did not fit."""
    shown = [{name: _cell(value) for name, value in row.items()} for row in rows]
    natural = {name: _natural_width(name, shown) for name in shown[0]}
    first = {name: natural[name] for name in room or natural}
    fitting = _fitting(first, keep, width, shrinks)
    columns = {name: fitting[name] for name in natural if name in fitting}
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_edge=False)
    for name, wide in columns.items():
        least = wide if name == "ID" else None  # it is there to be copied
        most = wide if name in shrinks else None
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least, max_width=most)
    for row in shown:
        table.add_row(*(row[name] for name in columns))
    return table, [name for name in natural if name not in columns]


def _natural_width(name: str, rows: Sequence[Mapping[str, Text]]) -> int:
    return max(cell_len(name), *(cell_len(row[name].plain) for row in rows))


def _fitting(
    natural: Mapping[str, int], keep: int, width: int, shrinks: Mapping[str, int]
) -> dict[str, int]:
    """The columns that are shown, and how wide; those that shrink have what the rest leaves."""
    columns: dict[str, int] = {}
    left = width
    for name, wide in natural.items():
        least = min(wide, shrinks.get(name, wide))
        wished = 0 if name in shrinks else _wished(columns, natural, shrinks)
        if len(columns) >= keep and least + wished > left:
            continue
        columns[name] = least
        left -= least + GAP
    spare = left + GAP
    for name in shrinks:
        if name in columns:
            least = columns[name]
            columns[name] = min(natural[name], max(len(name), least + spare))
            spare -= columns[name] - least
    return columns


def _wished(columns: Mapping[str, int], natural: Mapping[str, int], shrinks: Iterable[str]) -> int:
    """Return the width that shrinking columns should get before a later column gets any."""
    shrunk = [name for name in shrinks if name in columns]
    return sum(max(0, min(natural[name], SHRUNK_CHARS) - columns[name]) for name in shrunk)


def _cell(value: Cell) -> Text:
    if isinstance(value, Text):
        return value
    line = plain_line(value)
    return Text(line if len(line) <= CELL_LIMIT else line[: CELL_LIMIT - 1] + "…")


def print_fields(fields: Mapping[str, Cell | None]) -> None:
    """Name and value, an item for each; what is empty is left out."""
    given = {name: value for name, value in fields.items() if value}
    wide = max(map(len, given), default=0)
    for name, value in given.items():
        item(f"{name:<{wide}}", value, label_style="dim")


_STYLES = {Status.RUNNING: "cyan", Status.ROLLING_BACK: "cyan", Status.COMPLETED: "green"}


def status_text(status: Status) -> Text:
    if status in SUSPENDED:
        return Text(status.value, style="bold red")
    resting = "" if status in SETTLED or status is Status.PENDING else "yellow"
    return Text(status.value, style=_STYLES.get(status, resting))


def section(name: str) -> None:
    say()
    say(name, style="bold")


def at(moment: float | None) -> str | None:
    return None if moment is None else iso(moment)


def iso_seconds(moment: float) -> str:
    """Format a time as ``2026-01-31 12:00:00``, in UTC."""
    return iso(moment)[:19].replace("T", " ")


def since(moment: float, now: float) -> str:
    """Format a time as ``3m20s ago (2026-01-31T12:00:00.000+00:00)``."""
    return f"{span(now - moment)} ago ({iso(moment)})"
