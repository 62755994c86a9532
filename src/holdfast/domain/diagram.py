"""The state machine, drawn from its table: as text, as Mermaid, as SVG.

Where things stand on the page is written by hand below; what stands there comes from the table. A
transition without a place on the page is an error, so the drawing cannot fall behind the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import msgspec

from holdfast.domain.durations import written
from holdfast.domain.state import OPERATOR, SETTLED, STORE, SUSPENDED, TABLE, Command, Status

S = Status


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The running system, to be drawn on the diagram."""

    counts: Mapping[Status, int]
    moves: Mapping[tuple[Status, Status], int]
    dwell_seconds: Mapping[Status, float]  # the mean, of those that have left


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    before: Status
    after: Status
    commands: tuple[Command, ...]

    @property
    def label(self) -> str:
        return ", ".join(self.commands)


def edges() -> Iterator[Edge]:
    """One per pair of statuses, with all the commands that lead from one to the other."""
    for before, row in TABLE.items():
        for after in dict.fromkeys(row.values()):
            commands = tuple(command for command, to in row.items() if to is after)
            yield Edge(before=before, after=after, commands=commands)


def text(live: Live | None = None) -> str:
    wide = max(len(command) for command in Command)
    lines = []
    for status, row in TABLE.items():
        note = f"  {_note(status, live)}" if live else ""
        lines.append(f"{status}{_meaning(status)}{note}")
        lines += [f"  {command:<{wide}} → {after}" for command, after in row.items()]
    return "\n".join(lines) + "\n"


def mermaid(live: Live | None = None) -> str:
    lines = ["stateDiagram-v2", "    direction LR"]
    lines += [f"    [*] --> {status}" for status in (S.CREATED, S.PENDING)]
    lines += [
        f"    {edge.before} --> {edge.after}: {edge.label}{_moved(edge, live)}" for edge in edges()
    ]
    lines += [f"    {status} --> [*]" for status in Status if status in SETTLED]
    if live:
        lines += [f"    {status}: {status} ({_note(status, live)})" for status in Status]
    return "\n".join(lines) + "\n"


def _meaning(status: Status) -> str:
    if status in SUSPENDED:
        return " (suspended)"
    return " (settled)" if status in SETTLED else ""


def _note(status: Status, live: Live) -> str:
    dwell = live.dwell_seconds.get(status)
    stays = "" if dwell is None else f", stays {written(_rough(dwell))}"
    return f"{live.counts.get(status, 0)} now{stays}"


def _rough(seconds: float) -> float:
    return round(seconds, 1) if seconds < 10 else round(seconds)


def _moved(edge: Edge, live: Live | None) -> str:
    count = live.moves.get((edge.before, edge.after), 0) if live else 0
    return f" ({count})" if count else ""


# -- SVG

WIDTH, HEIGHT = 1330, 740
BOX_WIDTH, BOX_HEIGHT, CORNER = 150, 50, 10

Point = tuple[int, int]

CENTRES: Mapping[Status, Point] = {
    S.CREATED: (95, 300),
    S.PENDING: (360, 300),
    S.RUNNING: (690, 300),
    S.COMPLETED: (1130, 300),
    S.RETRYING: (510, 110),
    S.FAILED: (900, 110),
    S.PAUSED: (510, 470),
    S.ROLLING_BACK: (960, 470),
    S.ROLLED_BACK: (1230, 470),
    S.CANCELLED: (600, 640),
    S.ROLLBACK_FAILED: (960, 640),
}

# Where the label stands, then the corners of the line from the first status to the second.
ROUTES: Mapping[tuple[Status, Status], tuple[Point, Sequence[Point]]] = {
    (S.CREATED, S.PENDING): ((197, 300), [(170, 300), (285, 300)]),
    (S.CREATED, S.CANCELLED): ((150, 660), [(95, 325), (95, 660), (525, 660)]),
    (S.PENDING, S.RUNNING): ((472, 288), [(435, 288), (615, 288)]),
    (S.PENDING, S.PAUSED): ((405, 395), [(405, 325), (405, 458), (435, 458)]),
    (S.PENDING, S.CANCELLED): ((310, 560), [(310, 325), (310, 620), (525, 620)]),
    (S.RUNNING, S.COMPLETED): ((995, 300), [(765, 300), (1055, 300)]),
    (S.RUNNING, S.RETRYING): ((650, 190), [(650, 275), (650, 110), (585, 110)]),
    (S.RUNNING, S.FAILED): ((730, 190), [(730, 275), (730, 110), (825, 110)]),
    (S.RUNNING, S.PAUSED): ((635, 395), [(635, 325), (635, 458), (585, 458)]),
    (S.RUNNING, S.CANCELLED): ((660, 560), [(660, 325), (660, 615)]),
    (S.RUNNING, S.PENDING): ((565, 312), [(615, 312), (435, 312)]),
    (S.RETRYING, S.PENDING): ((405, 190), [(435, 122), (405, 122), (405, 275)]),
    (S.RETRYING, S.PAUSED): ((510, 395), [(510, 135), (510, 445)]),
    (S.RETRYING, S.CANCELLED): ((225, 395), [(435, 98), (225, 98), (225, 640), (525, 640)]),
    (S.PAUSED, S.PENDING): ((365, 430), [(435, 482), (365, 482), (365, 325)]),
    (S.PAUSED, S.CANCELLED): ((550, 560), [(550, 495), (550, 615)]),
    (S.PAUSED, S.ROLLING_BACK): ((760, 482), [(585, 482), (885, 482)]),
    (S.COMPLETED, S.ROLLING_BACK): ((1085, 395), [(1085, 325), (1085, 458), (1035, 458)]),
    (S.FAILED, S.PENDING): ((620, 52), [(900, 85), (900, 52), (355, 52), (355, 275)]),
    (S.FAILED, S.ROLLING_BACK): ((945, 395), [(945, 135), (945, 445)]),
    (S.FAILED, S.CANCELLED): ((845, 395), [(845, 135), (845, 625), (675, 625)]),
    (S.CANCELLED, S.ROLLING_BACK): (
        (760, 641),
        [(675, 641), (865, 641), (865, 545), (900, 545), (900, 495)],
    ),
    (S.ROLLING_BACK, S.ROLLED_BACK): ((1096, 502), [(1035, 482), (1155, 482)]),
    (S.ROLLING_BACK, S.ROLLBACK_FAILED): ((1012, 548), [(1000, 495), (1000, 615)]),
    (S.ROLLED_BACK, S.PENDING): ((620, 22), [(1265, 445), (1265, 22), (315, 22), (315, 275)]),
    (S.ROLLBACK_FAILED, S.ROLLING_BACK): ((938, 580), [(938, 615), (938, 495)]),
    (S.ROLLBACK_FAILED, S.CANCELLED): ((760, 657), [(885, 657), (675, 657)]),
}

ASKED, MOVED, HELD = "#1d5fbf", "#5b7f3a", "#333333"

STYLE = """\
  text { font: 12px 'DejaVu Sans', Verdana, sans-serif; text-anchor: middle }
  .name { font-weight: bold; font-size: 13px }
  .left { text-anchor: start }
  path { fill: none; stroke-width: 1.4 }
  rect.status { fill: #f3f5f8; stroke: #333333; stroke-width: 1.4 }
  rect.suspended { fill: #fde3e1; stroke: #b3261e }
  rect.settled { fill: #e3f1e1; stroke: #33691e }"""


def svg(live: Live | None = None) -> str:
    moving = [edge for edge in edges() if edge.before is not edge.after]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>The states of a task</title>",
        f"<style>\n{STYLE}\n</style>",
        *(_arrowhead(colour) for colour in (ASKED, MOVED, HELD)),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *(_line(edge) for edge in moving),
        *(_label(edge, live) for edge in moving),
        *(_box(status, live) for status in Status),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _arrowhead(colour: str) -> str:
    return (
        f'<marker id="to{colour[1:]}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0,0 8,4 0,8z" style="fill:{colour}"/></marker>'
    )


def _line(edge: Edge) -> str:
    _, points = ROUTES[edge.before, edge.after]
    colour = _colour(edge)
    return f'<path d="{_rounded(points)}" stroke="{colour}" marker-end="url(#to{colour[1:]})"/>'


def _colour(edge: Edge) -> str:
    """By whose hand: a person's, the store's, the holder's of the lease."""
    if edge.before is S.RUNNING:
        return HELD
    first = edge.commands[0]
    return ASKED if first in OPERATOR else MOVED if first in STORE else HELD


def _rounded(points: Sequence[Point]) -> str:
    """Through all the points, with round corners."""
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


def _label(edge: Edge, live: Live | None) -> str:
    (x, y), _ = ROUTES[edge.before, edge.after]
    said = f"{edge.label}{_moved(edge, live)}"
    wide = len(said) * 7 + 4  # about as wide as the text: the line must not strike it through
    return (
        f'<rect x="{x - wide // 2}" y="{y - 8}" width="{wide}" height="16" fill="#ffffff"/>'
        f'<text x="{x}" y="{y + 4}" fill="{_colour(edge)}">{escape(said)}</text>'
    )


def _box(status: Status, live: Live | None) -> str:
    x, y = CENTRES[status]
    kind = "suspended" if status in SUSPENDED else "settled" if status in SETTLED else ""
    left, top = x - BOX_WIDTH // 2, y - BOX_HEIGHT // 2
    note = f'<text x="{x}" y="{y + 17}">{escape(_note(status, live))}</text>' if live else ""
    return (
        f'<rect class="status {kind}" x="{left}" y="{top}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="8"/>'
        f'<text class="name" x="{x}" y="{y - 1 if live else y + 5}">{status}</text>{note}'
    )


def _legend() -> Iterator[str]:
    staying = [edge for edge in edges() if edge.before is edge.after]
    stays = "; ".join(f"{edge.before}: {edge.label}" for edge in staying)
    yield f'<text class="left" x="20" y="705">Within a status: {escape(stays)}</text>'
    for x, colour, said in (
        (20, ASKED, "a person asks"),
        (140, HELD, "the worker that holds the lease"),
        (370, MOVED, "the store, over many tasks at once"),
    ):
        yield f'<text class="left" x="{x}" y="727" fill="{colour}">{said}</text>'
