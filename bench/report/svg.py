"""Plots as SVG, by hand: bars and lines are all we need, and no plotting library comes along.

Colours follow the reader's choice of light or dark; whatever is ours stands out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

WIDTH = 760
LABEL_WIDTH = 190
RIGHT = 120
ROW = 26
TOP = 56
BOTTOM = 46
LINES_HEIGHT = 300
COLOURS = ("a", "b", "c", "d", "e", "f")
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.axis, .spread { stroke: #59636e; stroke-width: 1; fill: none }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.ours { fill: #0969da } .other { fill: #afb8c1 } .back { fill: #ffffff }
.line { fill: none; stroke-width: 2 }
.a { stroke: #0969da } .b { stroke: #1a7f37 } .c { stroke: #bc4c00 }
.d { stroke: #8250df } .e { stroke: #bf3989 } .f { stroke: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 }
  .axis, .spread { stroke: #9198a1 } .grid { stroke: #3d444d } .back { fill: #0d1117 }
  .ours { fill: #4493f8 } .other { fill: #656c76 }
  .a { stroke: #4493f8 } .b { stroke: #3fb950 } .c { stroke: #f0883e }
  .d { stroke: #ab7df8 } .e { stroke: #db61a2 } .f { stroke: #9198a1 }
}
"""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    value: float
    least: float
    most: float
    ours: bool = False


class Line(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def bars(title: str, axis: str, rows: Sequence[Bar], *, log: bool = False) -> str:
    """Lying bars; the thin stroke goes from the least to the most of the runs."""
    scale = _Scale([bar.most for bar in rows] + [bar.least for bar in rows], log=log)
    left, right = LABEL_WIDTH, WIDTH - RIGHT
    bottom = TOP + ROW * len(rows)
    parts = []
    for tick in scale.ticks:
        x = scale.at(tick, left, right)
        parts.append(_stroke("grid", x, TOP, x, bottom))
        parts.append(_text(x, bottom + 16, _short(tick), "small", "middle"))
    for n, bar in enumerate(rows):
        middle = TOP + ROW * n + ROW / 2
        end = scale.at(bar.value, left, right)
        kind = "ours" if bar.ours else "other"
        parts.append(_text(left - 8, middle + 4, bar.label, anchor="end"))
        parts.append(
            f'<rect class="{kind}" x="{left}" y="{middle - 8:.1f}" '
            f'width="{max(1.0, end - left):.1f}" height="16"/>'
        )
        least, most = scale.at(bar.least, left, right), scale.at(bar.most, left, right)
        parts.append(_stroke("spread", least, middle, most, middle))
        parts.append(_text(max(end, most) + 6, middle + 4, _short(bar.value), "small"))
    parts.append(_stroke("axis", left, TOP, left, bottom))
    parts.append(_text((left + right) / 2, bottom + 36, axis, "small", "middle"))
    return _whole(title, bottom + BOTTOM, parts)


def lines(title: str, x_axis: str, y_axis: str, series: Sequence[Line]) -> str:
    """Lines over a logarithmic x axis; y begins at nought."""
    left, right, bottom = 80, WIDTH - 200, TOP + LINES_HEIGHT
    points = [point for line in series for point in line.points]
    xs = _Scale([x for x, _ in points], log=True)
    ys = _Scale([y for _, y in points], log=False)
    parts = []
    for tick in ys.ticks:
        y = ys.at(tick, bottom, TOP)
        parts.append(_stroke("grid", left, y, right, y))
        parts.append(_text(left - 8, y + 4, _short(tick), "small", "end"))
    for tick in xs.ticks:
        x = xs.at(tick, left, right)
        parts.append(_stroke("grid", x, TOP, x, bottom))
        parts.append(_text(x, bottom + 16, _short(tick), "small", "middle"))
    for n, line in enumerate(series):
        colour = COLOURS[n % len(COLOURS)]
        placed = [(xs.at(x, left, right), ys.at(y, bottom, TOP)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline class="line {colour}" points="{path}"{dash}/>')
        parts += [
            f'<circle class="back {colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in placed
        ]
        row = TOP + 14 + 22 * n
        parts.append(f'<path class="line {colour}" d="M{right + 14} {row}h22"{dash}/>')
        parts.append(_text(right + 42, row + 4, line.label))
    parts.append(_stroke("axis", left, TOP, left, bottom))
    parts.append(_stroke("axis", left, bottom, right, bottom))
    parts.append(_text((left + right) / 2, bottom + 36, x_axis, "small", "middle"))
    parts.append(_text(left - 8, TOP - 12, y_axis, "small", "start"))
    return _whole(title, bottom + BOTTOM, parts)


class _Scale:
    """A scale from values to positions, with round ticks."""

    def __init__(self, values: Sequence[float], *, log: bool) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self._log = log
        if log:
            first = math.floor(math.log10(min(positive)) + 1e-9)
            last = max(first + 1, math.ceil(math.log10(max(positive)) - 1e-9))
            self.ticks = [10.0**n for n in range(first, last + 1)]
        else:
            step = _round_step(max(positive))
            count = math.ceil(max(positive) / step - 1e-9)
            self.ticks = [step * n for n in range(count + 1)]

    def at(self, value: float, start: float, end: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        if self._log:
            value = max(value, low)
            share = math.log10(value / low) / math.log10(high / low)
        else:
            share = (value - low) / (high - low)
        return start + share * (end - start)


def _round_step(most: float) -> float:
    rough = most / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= rough)


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _stroke(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f'<text{shown} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _whole(title: str, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'role="img" aria-label="{escape(title, quote=True)}">'
    )
    back = f'<rect class="back" width="{WIDTH}" height="{height:.0f}"/>'
    return "\n".join(
        [head, f"<style>{STYLE}</style>", back, _text(16, 28, title, "title"), *parts, "</svg>", ""]
    )
