"""The retry policy of a stage: how long a task waits, and which errors end its retries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.domain.backoff import stretch
from holdfast.domain.durations import seconds
from holdfast.domain.errors import DeclarationError, Permanent, RetryAfter

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: ``max`` failures of a stage in a row suspend the task.

    Before each retry it waits a ``backoff``; the last one repeats. ``jitter`` stretches each wait
    by up to that share, so that tasks that failed together do not run again together.
    """

    max: int = 3
    backoff: tuple[float | str, ...] = ("1m", "5m", "15m")
    jitter: float = 0.1
    retry_on: Errors = ()
    give_up_on: Errors = ()
    backoff_seconds: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.max, bool) or not isinstance(self.max, int) or self.max < 1:
            raise DeclarationError(f"Retry(max={self.max!r}) must be at least 1, for one attempt")
        if isinstance(self.backoff, str | int | float):
            raise DeclarationError(f"Retry(backoff={self.backoff!r}) must be a tuple of durations")
        if not self.backoff:
            raise DeclarationError("Retry(backoff=()) must have at least one duration")
        if not 0 <= self.jitter <= 1:
            raise DeclarationError(f"Retry(jitter={self.jitter!r}) must be between 0 and 1")
        for name in ("retry_on", "give_up_on"):
            object.__setattr__(self, name, _error_types(name, getattr(self, name)))
        object.__setattr__(self, "backoff_seconds", tuple(seconds(b) for b in self.backoff))

    def gives_up(self, error: BaseException) -> bool:
        """Return whether, by the type of the error alone, another attempt cannot help."""
        if isinstance(error, RetryAfter):
            return False
        if isinstance(error, (Permanent, self.give_up_on)):
            return True
        return bool(self.retry_on) and not isinstance(error, self.retry_on)

    def decides_on(self, error: BaseException) -> bool:
        """Return whether the policy says what to do about the error: then it is no outage."""
        if isinstance(error, (Permanent, RetryAfter, self.give_up_on)):
            return True
        return bool(self.retry_on)

    def delay_seconds(self, failures: int, chance: float) -> float:
        """Return the wait after the ``failures``-th failure in a row; ``chance`` in [0, 1)."""
        base = self.backoff_seconds[min(failures, len(self.backoff_seconds)) - 1]
        return stretch(base, self.jitter, chance)


def _error_types(name: str, given: object) -> tuple[type[BaseException], ...]:
    types = given if isinstance(given, tuple) else (given,)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise DeclarationError(
                f"Retry({name}={given!r}) must be an exception type, or a tuple of them"
            )
    return types
