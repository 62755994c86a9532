"""Durations as people write them: ``7d``, ``2h30m``, ``30s``, or a number of seconds."""

from __future__ import annotations

import math
import re

from holdfast.domain.errors import InvalidInput

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WRITTEN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
LONGEST_SECONDS = 100 * 365 * 86_400


def seconds(value: float | str) -> float:
    if isinstance(value, str):
        parsed = _parse(value.strip())
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{value!r} is not a duration")
    else:
        parsed = float(value)
    if not math.isfinite(parsed) or not 0 <= parsed <= LONGEST_SECONDS:
        raise InvalidInput(f"{value!r} is not a duration between 0 and 100 years")
    return parsed


def format_duration(value: float) -> str:
    """Format seconds: ``9000`` → ``2h30m``; below a second: ``0.25s``."""
    if value < 1:
        return f"{round(value, 3):g}s"
    rest, parts = round(value), []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _parse(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    match = _WRITTEN.fullmatch(text)
    if match is None or not text:
        raise InvalidInput(f"{text!r} is not a duration; write 7d, 2h30m, 30s or seconds")
    return sum(
        float(count) * size
        for count, size in zip(match.groups(), _UNITS.values(), strict=True)
        if count
    )
