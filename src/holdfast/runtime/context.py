"""The context is what a stage sees of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol, TypeVar

from holdfast.domain.error_text import clean
from holdfast.domain.errors import InvalidInput, NoResult
from holdfast.domain.task.task import Progress

R = TypeVar("R")
MESSAGE_LIMIT_CHARS = 200

R_co = TypeVar("R_co", covariant=True)


class HasResult(Protocol[R_co]):
    """A declared stage, as `ctx.result_of` takes it."""

    @property
    def name(self) -> str: ...

    def read_result(self, body: bytes, /) -> R_co: ...


class Context:
    """The context that is handed to each stage and undo function."""

    __slots__ = (
        "_now",
        "_report",
        "_results",
        "attempt",
        "data",
        "fence",
        "key",
        "stage",
        "task_id",
        "tenant",
    )

    def __init__(
        self,
        *,
        task_id: str,
        tenant: str | None,
        stage: str,
        attempt: int,
        key: str,
        fence: int,
        data: MutableMapping[str, Any],
        results: Mapping[str, bytes],
        report: Callable[[Progress], None],
        now: Callable[[], float],
    ) -> None:
        self.task_id = task_id
        self.tenant = tenant
        self.stage = stage
        self.attempt = attempt
        self.key = key  # the same for every attempt at this effect; a redo has another
        self.fence = fence  # rises with each holder: hand it on to refuse a late one
        self.data = data  # kept in the checkpoint when the stage succeeds or snoozes
        self._results = results
        self._report = report
        self._now = now

    def find_result(self, stage: HasResult[R]) -> R | None:
        """Return what that stage returned, or None if it has not completed."""
        body = self._results.get(stage.name)
        return None if body is None else stage.read_result(body)

    def result_of(self, stage: HasResult[R]) -> R:
        """Return what that stage returned; raise NoResult if it has not completed."""
        body = self._results.get(stage.name)
        if body is None:
            raise NoResult(stage.name)
        return stage.read_result(body)

    def progress(self, fraction: float, message: str = "") -> None:
        """Report progress, seen live within about a second; only the last report counts."""
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"progress {fraction!r} is not between 0 and 1")
        text = clean(str(message))[:MESSAGE_LIMIT_CHARS]
        self._report(
            Progress(fraction=float(fraction), message=text, stage=self.stage, at=self._now())
        )
