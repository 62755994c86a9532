"""A state machine, drawn from its table: as text, as Mermaid, as SVG.

Positions on the page are written by hand in `layouts.py`; statuses and transitions come from the
table. A transition without a position is an error, so no drawing can fall behind the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.domain.durations import format_duration
from holdfast.domain.machine import Machine

S = TypeVar("S", bound=StrEnum)
C = TypeVar("C", bound=StrEnum)

Point = tuple[int, int]
Route = tuple[Point, Sequence[Point]]  # the position of the label, the corners of the line


class LiveCounts(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """The counts of the running system, to be drawn on the diagram."""

    counts: Mapping[S, int]
    moves: Mapping[tuple[S, S], int]
    dwell_seconds: Mapping[S, float]  # the mean of those that have left the status


class Arrow(msgspec.Struct, Generic[S, C], frozen=True, kw_only=True):
    before: S
    after: S
    commands: tuple[C, ...]

    @property
    def label(self) -> str:
        return ", ".join(self.commands)


class Mover(msgspec.Struct, frozen=True, kw_only=True):
    """The party that makes a transition: its colour and its text in the legend."""

    colour: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture(Generic[S, C]):
    title: str
    machine: Machine[S, C]
    begins: Sequence[S]
    suspended: Collection[S]
    settled: Collection[S]
    movers: Sequence[Mover]
    mover_of: Callable[[Arrow[S, C]], Mover]
    width: int
    height: int
    centres: Mapping[S, Point]
    routes: Mapping[tuple[S, S], Route]


AnyPicture = Picture[Any, Any]
AnyLive = LiveCounts[Any]


def edges(picture: Picture[S, C]) -> Iterator[Arrow[S, C]]:
    """Return one arrow for each pair of statuses, with every command that leads along it."""
    for before, row in picture.machine.table.items():
        for after in dict.fromkeys(row.values()):
            commands = tuple(command for command, to in row.items() if to is after)
            yield Arrow(before=before, after=after, commands=commands)


def text(picture: AnyPicture, live: AnyLive | None = None) -> str:
    wide = max(len(command) for command in picture.machine.commands)
    lines = []
    for status, row in picture.machine.table.items():
        note = f"  {_note(status, live)}" if live else ""
        kind = _kind(picture, status)
        lines.append(f"{status}{f' ({kind})' if kind else ''}{note}")
        lines += [f"  {command:<{wide}} → {after}" for command, after in row.items()]
    return "\n".join(lines) + "\n"


def mermaid(picture: AnyPicture, live: AnyLive | None = None) -> str:
    statuses = picture.machine.table
    lines = ["stateDiagram-v2", "    direction LR"]
    lines += [f"    [*] --> {status}" for status in picture.begins]
    lines += [
        f"    {edge.before} --> {edge.after}: {edge.label}{_count_label(edge, live)}"
        for edge in edges(picture)
    ]
    lines += [f"    {status} --> [*]" for status in statuses if status in picture.settled]
    if live:
        lines += [f"    {status}: {status} ({_note(status, live)})" for status in statuses]
    return "\n".join(lines) + "\n"


def _kind(picture: AnyPicture, status: StrEnum) -> str:
    if status in picture.suspended:
        return "suspended"
    return "settled" if status in picture.settled else ""


def _note(status: StrEnum, live: AnyLive) -> str:
    dwell = live.dwell_seconds.get(status)
    stays = ""
    if dwell is not None:
        stays = f", stays {format_duration(round(dwell, 1 if dwell < 10 else None))}"
    return f"{live.counts.get(status, 0)} now{stays}"


def _count_label(edge: Arrow[Any, Any], live: AnyLive | None) -> str:
    count = live.moves.get((edge.before, edge.after), 0) if live else 0
    return f" ({count})" if count else ""


# -- SVG

BOX_WIDTH, BOX_HEIGHT, CORNER = 150, 50, 10
CHAR_WIDTH = 7  # about; the line must not cross its label

STYLE = """\
  text { font: 12px 'DejaVu Sans', Verdana, sans-serif; text-anchor: middle }
  .name { font-weight: bold; font-size: 13px }
  .left { text-anchor: start }
  path { fill: none; stroke-width: 1.4 }
  rect.status { fill: #f3f5f8; stroke: #333333; stroke-width: 1.4 }
  rect.suspended { fill: #fde3e1; stroke: #b3261e }
  rect.settled { fill: #e3f1e1; stroke: #33691e }"""


def svg(picture: AnyPicture, live: AnyLive | None = None) -> str:
    width, height = picture.width, picture.height
    moving = [edge for edge in edges(picture) if edge.before is not edge.after]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{picture.title}</title>",
        f"<style>\n{STYLE}\n</style>",
        *(_arrowhead(mover.colour) for mover in picture.movers),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *(_line(picture, edge) for edge in moving),
        *(_label(picture, edge, live) for edge in moving),
        *(_box(picture, status, live) for status in picture.machine.table),
        *_legend(picture),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _arrowhead(colour: str) -> str:
    return (
        f'<marker id="to{colour[1:]}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0,0 8,4 0,8z" style="fill:{colour}"/></marker>'
    )


def _line(picture: AnyPicture, edge: Arrow[Any, Any]) -> str:
    _, points = picture.routes[edge.before, edge.after]
    colour = picture.mover_of(edge).colour
    return (
        f'<path d="{_rounded_path(points)}" stroke="{colour}" marker-end="url(#to{colour[1:]})"/>'
    )


def _rounded_path(points: Sequence[Point]) -> str:
    """Return a path through all the points, with round corners."""
    path = [f"M{points[0][0]},{points[0][1]}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        (ax, ay), (bx, by) = _towards(corner, before), _towards(corner, after)
        path.append(f"L{ax},{ay} Q{corner[0]},{corner[1]} {bx},{by}")
    return " ".join((*path, f"L{points[-1][0]},{points[-1][1]}"))


def _towards(corner: Point, other: Point) -> Point:
    (x, y), (to_x, to_y) = corner, other
    return x + _sign(to_x - x) * CORNER, y + _sign(to_y - y) * CORNER


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def label_width(label: str) -> int:
    return len(label) * CHAR_WIDTH + 4


def _label(picture: AnyPicture, edge: Arrow[Any, Any], live: AnyLive | None) -> str:
    (x, y), _ = picture.routes[edge.before, edge.after]
    label = f"{edge.label}{_count_label(edge, live)}"
    wide = label_width(label)
    return (
        f'<rect x="{x - wide // 2}" y="{y - 8}" width="{wide}" height="16" fill="#ffffff"/>'
        f'<text x="{x}" y="{y + 4}" fill="{picture.mover_of(edge).colour}">{escape(label)}</text>'
    )


def _box(picture: AnyPicture, status: StrEnum, live: AnyLive | None) -> str:
    x, y = picture.centres[status]
    left, top = x - BOX_WIDTH // 2, y - BOX_HEIGHT // 2
    note = f'<text x="{x}" y="{y + 17}">{escape(_note(status, live))}</text>' if live else ""
    return (
        f'<rect class="status {_kind(picture, status)}" x="{left}" y="{top}" '
        f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>'
        f'<text class="name" x="{x}" y="{y - 1 if live else y + 5}">{status}</text>{note}'
    )


def _legend(picture: AnyPicture) -> Iterator[str]:
    staying: dict[str, list[str]] = {}
    for edge in edges(picture):
        if edge.before is edge.after:
            staying.setdefault(edge.label, []).append(edge.before)
    stays = "; ".join(f"{', '.join(statuses)}: {label}" for label, statuses in staying.items())
    top = picture.height - 35
    yield f'<text class="left" x="20" y="{top}">Within a status: {escape(stays)}</text>'
    x = 20
    for mover in picture.movers:
        text = f'<text class="left" x="{x}" y="{top + 22}" fill="{mover.colour}">'
        yield f"{text}{mover.legend}</text>"
        x += len(mover.legend) * CHAR_WIDTH + 29
