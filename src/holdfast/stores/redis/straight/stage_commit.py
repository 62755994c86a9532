"""The commit of a stage that is not the last, for commit_stages.lua."""

from __future__ import annotations

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.placement import Next
from holdfast.domain.task.transition import Transition
from holdfast.stores.redis.encoding import record
from holdfast.stores.redis.encoding.submission import as_text
from holdfast.stores.redis.straight.models import (
    UsualMove,
    is_by_holder,
    start_element,
    version_element,
)


def usual_stage_commit(transition: Transition) -> UsualMove | None:
    """Return the words of a stage's commit, or None for one that the general script must write."""
    before, after, lease = transition.before, transition.after, transition.before.lease
    checkpoint, stage = transition.checkpoint, transition.stage
    if (
        transition.next is not Next.STAY
        or checkpoint is None
        or transition.drop_checkpoint
        or transition.result is not None
        or transition.data is not None
        or stage is None
        or lease is None
        or len(after.stages) == 1
        or after.status is not before.status
        or after.status_since != before.status_since
        or after.settled_at != before.settled_at
        or after.ran_by != before.ran_by
        or not is_by_holder(transition)
    ):
        return None
    index, body = record.encode_stage(stage)
    facts = record.checkpoint_meta(checkpoint)
    version, saved_by, last, saved_at = facts[1::2]
    model = (
        str(before.version),
        str(after.version),
        after.queue,
        record.stage_names(after.stages),
        index,
        str(record.saves(after) - record.saves(before)),
        version,
        saved_by,
        last,
    )
    texts = (
        after.id,
        lease.id,
        record.iso(after.updated_at),
        body,
        as_text(after, ckpt.encode(checkpoint)),
        saved_at,
        start_element(before),
        version_element(transition),
    )
    return UsualMove(model, texts)
