"""Events of a plan, one class for each kind; every version has at least one event."""

from __future__ import annotations

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.task import By


class PlanEvent(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="event", rename="camel", gc=False
):
    plan_id: str
    version: int  # of the record, after the change
    at: float


class PlanCreated(PlanEvent, frozen=True, kw_only=True, tag="PlanCreated"):
    total: int


class PlanReady(PlanEvent, frozen=True, kw_only=True, tag="PlanReady"):
    pass


class PlanStarted(PlanEvent, frozen=True, kw_only=True, tag="PlanStarted"):
    pass


class WaveStarted(PlanEvent, frozen=True, kw_only=True, tag="WaveStarted"):
    wave: int
    tasks: int


class WaveEnded(PlanEvent, frozen=True, kw_only=True, tag="WaveEnded"):
    wave: int
    completed: int
    failed: int


class PlanAdvanced(PlanEvent, frozen=True, kw_only=True, tag="PlanAdvanced"):
    """Tasks were released or have ended, by their numbers in the plan."""

    moved: tuple[tuple[int, str], ...] = ()


class TenantsSkipped(PlanEvent, frozen=True, kw_only=True, tag="TenantsSkipped"):
    tenants: tuple[str, ...]


class PlanPaused(PlanEvent, frozen=True, kw_only=True, tag="PlanPaused"):
    by: By


class PlanResumed(PlanEvent, frozen=True, kw_only=True, tag="PlanResumed"):
    by: By


class PlanHalted(PlanEvent, frozen=True, kw_only=True, tag="PlanHalted"):
    wave: int
    why: str


class PlanRetried(PlanEvent, frozen=True, kw_only=True, tag="PlanRetried"):
    by: By
    tasks: int


class PlanCancelRequested(PlanEvent, frozen=True, kw_only=True, tag="PlanCancelRequested"):
    by: By


class PlanCancelled(PlanEvent, frozen=True, kw_only=True, tag="PlanCancelled"):
    pass


class PlanCompleted(PlanEvent, frozen=True, kw_only=True, tag="PlanCompleted"):
    pass


class PlanPartlyFailed(PlanEvent, frozen=True, kw_only=True, tag="PlanPartlyFailed"):
    failed: int


class PlanFailed(PlanEvent, frozen=True, kw_only=True, tag="PlanFailed"):
    failed: int


class PlanRollingBack(PlanEvent, frozen=True, kw_only=True, tag="PlanRollingBack"):
    tasks: int
    by: By | None = None  # None: by the terms of the plan, when it had halted


class RollbackRefused(PlanEvent, frozen=True, kw_only=True, tag="RollbackRefused"):
    """The tasks of these tenants are not undone, because newer work has run for them."""

    tenants: tuple[str, ...]


class PlanRolledBack(PlanEvent, frozen=True, kw_only=True, tag="PlanRolledBack"):
    pass


class PlanRollbackFailed(PlanEvent, frozen=True, kw_only=True, tag="PlanRollbackFailed"):
    failed: int


NAMES: dict[type[PlanEvent], str] = {
    kind: str(kind.__struct_config__.tag) for kind in PlanEvent.__subclasses__()
}
KINDS: dict[str, type[PlanEvent]] = {name: kind for kind, name in NAMES.items()}

_encode = msgspec.json.Encoder().encode
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


class _Named(msgspec.Struct, frozen=True):
    event: str


_name = msgspec.json.Decoder(_Named)


def name_of(event: PlanEvent) -> str:
    """Return the name that the event has in stores, streams and messages."""
    return NAMES[type(event)]


def encode(event: PlanEvent) -> bytes:
    return _encode(event)


def decode(body: bytes) -> PlanEvent:
    try:
        return _decoders[_name.decode(body).event].decode(body)
    except (KeyError, msgspec.DecodeError) as error:
        raise SerialisationError(f"a plan's event cannot be read: {error}") from error
