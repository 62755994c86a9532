"""Commands print tables that fit the terminal, and JSON that machines can rely on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.domain.phrases import span
from holdfast.domain.plain import plain_json, plain_line
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import SUSPENDED as PLAN_SUSPENDED
from holdfast.domain.plan.plan import PlanStatus
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.events import Event
from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.domain.trigger.trigger import TriggerStatus

GAP = 2
SHRUNK_CHARS = 20  # a column that may shrink gets as many before the next column is shown
MESSAGES: Mapping[str, int] = dict.fromkeys(("ERROR", "MESSAGE", "REASON"), SHRUNK_CHARS)
PIPE_WIDTH = 500  # nobody reads a pipe by columns: drop and cut nothing
CELL_LIMIT = 200
EVENTS_SHOWN = 60

E = TypeVar("E", Event, PlanEvent)
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
    """Print sentences; on a terminal, lines break between words."""
    target = console()
    target.print(Text(plain_line(text)), soft_wrap=target.width == PIPE_WIDTH)


def item(label: str, text: Cell, *, style: str | None = None, label_style: str = "") -> None:
    """Print a label and a text; on a terminal, the lines of the text stand below each other.
    No word is cut, because somebody may copy it.
    """
    target, head = console(), Text(f"{label}  ", style=label_style)
    lines: Sequence[Cell] = [text]
    if isinstance(text, str):
        lines = [plain_line(text)]
        if target.width != PIPE_WIDTH:
            lines = _fold(plain_line(text), target.width - head.cell_len)
    for number, line in enumerate(lines):
        before = Text(" " * head.cell_len) if number else head
        target.print(before + Text("").append(line), style=style, soft_wrap=True)


def _fold(text: str, width: int) -> list[str]:
    """Break a text between words; Rich's own folding cuts words that are too long."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def hint(text: str) -> None:
    """Print a remark on stderr, so that it does not end up in a pipe; an empty one is left out."""
    if text:
        console(stderr=True).print(Text(plain_line(text)), style="dim", soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    message = Text(plain_line(f"warning: {text}"))
    console(stderr=True).print(message, style="yellow", soft_wrap=True)


def print_json(value: Any) -> None:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print(plain_json(body))


def print_answer(view: Any, line: Cell, *, json: bool) -> None:
    """Print the answer of a command: the view as JSON, or the line for people."""
    if json:
        print_json(view)
    else:
        say(line)


def print_list(
    view: Mapping[str, Any],
    rows: Sequence[Row],
    *,
    json: bool,
    empty: str,
    keep: int,
    shrinks: Mapping[str, int] = MESSAGES,
    room: Sequence[str] = (),
) -> None:
    """Print a list: the view as JSON, or the rows as a table.

    A hint says that the list is ``empty``, and with which cursor the next page begins.
    """
    if json:
        print_json(view)
        return
    print_table(rows, keep=keep, shrinks=shrinks, room=room)
    if not rows:
        hint(empty)
    if view.get("cursor") is not None:
        hint(f"more with --cursor {view['cursor']}")


def print_table(
    rows: Sequence[Row],
    *,
    keep: int,
    shrinks: Mapping[str, int] = MESSAGES,
    room: Sequence[str] = (),
) -> None:
    """Print the columns of the rows, in order.

    Columns that do not fit are left out from the right and named in a hint; the first ``keep``
    columns always stay. Ids are never cut. A column in ``shrinks`` is cut down to that many
    characters before it is left out. ``room`` lists all columns in the order in which they get
    room, if that is another order.
    """
    if not rows:
        return
    target = console()
    table, left_out = table_of(rows, keep=keep, width=target.width, shrinks=shrinks, room=room)
    target.print(table)
    if left_out:
        hint(f"no room for {', '.join(left_out)}; a wider terminal or --json shows all")


def table_of(
    rows: Sequence[Row],
    *,
    keep: int,
    width: int,
    shrinks: Mapping[str, int] = MESSAGES,
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
        least = wide if name == "ID" else None  # people copy it
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
    """Return the columns that are shown, and their widths; those that shrink get what the others
    leave.
    """
    columns: dict[str, int] = {}
    left = width
    for name, wide in natural.items():
        least = min(wide, shrinks.get(name, wide))
        reserved = 0 if name in shrinks else _reserved_width(columns, natural, shrinks)
        if len(columns) >= keep and least + reserved > left:
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


def _reserved_width(
    columns: Mapping[str, int], natural: Mapping[str, int], shrinks: Iterable[str]
) -> int:
    """Return the width that shrinking columns should get before a later column gets any."""
    shrunk = [name for name in shrinks if name in columns]
    return sum(max(0, min(natural[name], SHRUNK_CHARS) - columns[name]) for name in shrunk)


def _cell(value: Cell) -> Text:
    if isinstance(value, Text):
        return value
    line = plain_line(value)
    return Text(line if len(line) <= CELL_LIMIT else line[: CELL_LIMIT - 1] + "…")


def print_fields(fields: Mapping[str, Cell | None]) -> None:
    """Print a line for each name and value; empty values are left out."""
    given = {name: value for name, value in fields.items() if value}
    wide = max(map(len, given), default=0)
    for name, value in given.items():
        item(f"{name:<{wide}}", value, label_style="dim")


_STYLES: dict[str, str] = {
    **dict.fromkeys({*SUSPENDED, *PLAN_SUSPENDED, TriggerStatus.SUSPENDED}, "bold red"),
    **dict.fromkeys((Status.RUNNING, Status.ROLLING_BACK, TriggerStatus.PROCESSING), "cyan"),
    **dict.fromkeys((Status.CREATED, Status.RETRYING, Status.PAUSED), "yellow"),
    Status.COMPLETED: "green",
}


def status_text(status: Status | PlanStatus | TriggerStatus) -> Text:
    """Return the status in its colour; statuses of one name look the same everywhere."""
    return Text(status.value, style=_STYLES.get(status, ""))


def section(name: str) -> None:
    say()
    say(name, style="bold")


def print_events(events: Sequence[E], describe: Callable[[E], str]) -> None:
    section("events")
    if len(events) > EVENTS_SHOWN:
        say(f"  … {len(events) - EVENTS_SHOWN} earlier; --json has all")
    for event in events[-EVENTS_SHOWN:]:
        item(f"  {iso_seconds(event.at)}", describe(event).rstrip())


def operator_text(by: Mapping[str, Any]) -> str:
    """Return the operator of an event, with the reason."""
    return f"by {by['actor']}" + (f" ({by['reason']})" if by.get("reason") else "")


def iso_seconds(moment: float) -> str:
    """Format a time as ``2026-01-31 12:00:00``, in UTC."""
    return iso(moment)[:19].replace("T", " ")


def since(moment: float, now: float) -> str:
    """Format a time as ``3m20s ago (2026-01-31T12:00:00.000+00:00)``."""
    return f"{span(now - moment)} ago ({iso(moment)})"
