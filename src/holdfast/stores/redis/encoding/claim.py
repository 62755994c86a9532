"""Tasks that claim.lua hands out, and the renewal of their leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.domain.errors import SerialisationError
from holdfast.ports import Claimed, Renewal
from holdfast.stores import codec
from holdfast.stores.redis.encoding import record

FIRST_RUN = 4  # parts of a task that is handed out for the first time


class ClaimReply(NamedTuple):
    """The answer of claim.lua."""

    handed_out: list[list[Any]]  # see `submission.first_claimed_of` and `claimed_of`
    unreadable: list[bytes]
    upto: int  # how many the request has got so far
    lease_until: bytes
    wall: bytes
    repeated: int | None = None  # how many a repeated request has to get in all


def claimed_of(parts: Sequence[Any]) -> Claimed:
    """Return a task that has run before, or a task whose claim is repeated."""
    name, fields, changes, until, newer_ran, bodies = parts
    texts = record.texts([*fields, *changes])
    task = record.decode(name.decode(), texts, float(until))
    payload, checkpoint, data, stages, version = [*bodies, None, None, None, None][:5]
    if payload is None:
        raise SerialisationError(f"task {task.id}: its payload is gone")
    return Claimed(
        task=task,
        payload=payload_in(payload),
        checkpoint=checkpoint,
        data=inline_or_kept(texts, "data", data),
        stages=record.decode_stages(stages or [], texts),
        moved_on=newer_ran == b"1",
        checkpoint_version=int(version) if checkpoint and version else 0,
    )


def payload_in(body: bytes) -> bytes:
    """Return the payload, behind the line with the task as it was submitted."""
    return body.partition(b"\n")[2]


def inline_or_kept(fields: Mapping[str, str], name: str, kept: bytes | None) -> bytes | None:
    """Return a body: a small one is in the record, another in a key of its own."""
    text = fields.get(name)
    return text.encode() if text else kept


def packed_renewal(renewal: Renewal) -> tuple[str, str, bytes]:
    progress = codec.encode(renewal.progress) if renewal.progress is not None else b""
    return renewal.task_id, renewal.lease_id, progress
