"""Waves as people write them: ``("1", "5%", "100%")`` of the tasks after each wave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from holdfast.domain.errors import InvalidPlan

MOST = 100
_WRITTEN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)%|(\d{1,9})")


def ends(waves: Sequence[str | int], total: int) -> tuple[int, ...]:
    """Return how many of ``total`` tasks have been released at the end of each wave; in a small
    plan, a wave that would release none is left out."""
    is_list = isinstance(waves, Sequence) and not isinstance(waves, str)
    if not is_list or not 0 < len(waves) <= MOST:
        raise InvalidPlan(f"waves are a list of 1 to {MOST}, as ('1', '5%', '100%')")
    numbers = [_end(wave, total) for wave in waves]
    _check_rises(waves, numbers)
    if numbers[-1] < total:
        left_out = total - numbers[-1]
        raise InvalidPlan(f"the last wave is {waves[-1]!r}, which leaves {left_out} tasks out")
    return tuple(dict.fromkeys(min(end, total) for end in numbers))


def _end(wave: str | int, total: int) -> int:
    match = _WRITTEN.fullmatch(str(wave).strip())
    if match is None or isinstance(wave, bool):
        raise InvalidPlan(f"{wave!r} is not a wave: a number of tasks, or a share as '25%'")
    share, number = match.groups()
    if share is not None and not 0 < float(share) <= 100:
        raise InvalidPlan(f"{wave!r} is not a share between 0 and 100%")
    end = ceil(total * float(share) / 100 - 1e-9) if share is not None else int(number)
    if end < 1:
        raise InvalidPlan(f"wave {wave!r} releases no task")
    return end


def _check_rises(waves: Sequence[str | int], ends: Sequence[int]) -> None:
    """Check that each wave goes further as written; in a small plan, the numbers may be equal."""
    for (wave, end), (after, later) in pairwise(zip(waves, ends, strict=True)):
        same_unit = str(wave).strip().endswith("%") == str(after).strip().endswith("%")
        if later < end or (same_unit and _size(after) <= _size(wave)):
            raise InvalidPlan(f"waves must rise: {after!r} does not go further than {wave!r}")


def _size(wave: str | int) -> float:
    return float(str(wave).strip().removesuffix("%"))
