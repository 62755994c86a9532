"""Arithmetic of pauses, for loops that try again. A task's retry delay is in `task/retry.py`."""

from __future__ import annotations

DOUBLINGS_MAX = 30  # any limit is reached by then; more would overflow a float at last


def doubled_seconds(bounds: tuple[float, float], doublings: int) -> float:
    """Return the first pause doubled so many times, but at most the longest pause."""
    first, longest = bounds
    return min(longest, first * 2.0 ** min(doublings, DOUBLINGS_MAX))


def stretch(seconds: float, jitter: float, chance: float) -> float:
    """Return the pause, longer by up to a share of ``jitter``; ``chance`` in [0, 1).

    So tasks that failed together do not run again together.
    """
    return seconds * (1 + jitter * chance)


def shorten(seconds: float, chance: float) -> float:
    """Return between a half and the whole of the pause; ``chance`` in [0, 1)."""
    return seconds * (0.5 + chance / 2)
