"""A completion for complete_tasks.lua, and the outcome in its answer."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.domain.task.placement import Next, Place
from holdfast.domain.task.transition import Applied, Transition
from holdfast.stores.redis.encoding import record
from holdfast.stores.redis.encoding.submission import as_text
from holdfast.stores.redis.encoding.transition import is_inline, straight_run
from holdfast.stores.redis.straight.models import (
    UsualMove,
    is_by_holder,
    start_element,
    version_element,
)


def usual_completion(transition: Transition, tombstone_seconds: int) -> UsualMove | None:
    """Return the words of a completion, or None for one that the general script must write."""
    before, after, lease = transition.before, transition.after, transition.before.lease
    result, data, stage = transition.result, transition.data, transition.stage
    if (
        transition.next is not Next.SETTLED
        or not transition.drop_checkpoint
        or transition.checkpoint is not None
        or result is None
        or data is None
        or stage is None
        or lease is None
        or after.ran_by is None
        or after.status is before.status
        or before.settled_at is not None
        or after.settled_at is None
        or after.settled_at != after.status_since
        or not is_by_holder(transition)
    ):
        return None
    first = before.version == record.FIRST_CLAIMED and len(after.stages) == 1
    _, stage_text = record.encode_stage(stage)
    result_text, data_text = as_text(after, result), as_text(after, data)
    stage_inline = len(after.stages) == 1 and is_inline(stage_text)
    ran = straight_run(transition) if stage_inline else None
    model = _model_of(
        _Kind(
            (before.version, after.version, before.status, after.status),
            (after.queue, after.type, after.stages, after.last_completed, after.ran_by),
            max(after.keep_seconds, tombstone_seconds),
            "none" if first else "drop",
            record.saves(after) - record.saves(before),
            (stage_inline, is_inline(result_text), is_inline(data_text)),
            (after.tenant is not None, after.key is not None, ran is not None),
        )
    )
    texts = (
        after.id,
        lease.id,
        lease.id.partition(":")[0],
        str(lease.fence),
        record.iso(after.updated_at),
        record.decimal(after.status_since),
        f"{after.settled_at + after.keep_seconds:.6f}",
        record.grave(after),
        str(max(0, round((after.updated_at - before.status_since) * 1_000_000))),
        stage_text,
        result_text,
        data_text,
        after.tenant or "",
        after.key or "",
        ran or version_element(transition),
        "" if ran else start_element(before),
    )
    return UsualMove(model, texts)


class _Kind(NamedTuple):
    """The facts that completions of one model share."""

    step: tuple[int, int, str, str]  # version and status, before and after
    task: tuple[str, str, tuple[str, ...], int, str]  # queue, type, stages, last one, worker
    kept_seconds: float
    checkpoint: str
    saves: int
    inline: tuple[bool, ...]  # stage, result, data
    flags: tuple[bool, ...]  # whether there are a tenant, a key, a straight run


@lru_cache(maxsize=1024)
def _model_of(kind: _Kind) -> tuple[str, ...]:
    version, next_version, before, after = kind.step
    queue, type_, stages, index, worker = kind.task
    return (
        *(str(version), str(next_version), before, after),
        *(queue, type_, record.stage_names(stages), str(index), worker),
        *(str(ceil(kind.kept_seconds)), kind.checkpoint, str(kind.saves)),
        *("field" if is_field else "key" for is_field in kind.inline),
        *("yes" if flag else "no" for flag in kind.flags),
    )


def completed_task(transition: Transition) -> Applied:
    """Return the outcome of a completion that was written."""
    return Applied(replace(transition.after, place=Place.SETTLED, due=None, lease=None))
