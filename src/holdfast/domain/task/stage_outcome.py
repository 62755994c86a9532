"""The outcome of one call of a stage or of its undo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.domain.task.task import Failure


class Done(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stage function has returned."""

    result: bytes
    data: Mapping[str, Any]
    started_at: float
    duration_seconds: float
    undo: bool | None = None  # whether the stage has one


class Snoozed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stage function asked to be called again later."""

    data: Mapping[str, Any]
    started_at: float
    delay_seconds: float


class Failed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stage or undo function has raised; ``retry_seconds`` None: no use in trying again.

    ``outage_seconds``: it was an outage, and a row of them may last so long.
    """

    failure: Failure
    started_at: float
    retry_seconds: float | None
    outage_seconds: float | None = None
