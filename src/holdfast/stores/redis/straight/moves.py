"""A holder's completions and stage commits in the words of their scripts.

What the tasks of a batch have in common is sent once, as their model.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.placement import Next, Place
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Applied, Transition
from holdfast.stores.redis.encoding import event_log, record
from holdfast.stores.redis.encoding.submission import as_text
from holdfast.stores.redis.encoding.transition import is_inline, straight_run


class UsualMove(NamedTuple):
    """A transition that is as usual, as far as it tells by itself."""

    model: tuple[str, ...]  # what it has in common with others
    texts: tuple[str, ...]  # what is its own


def words_by_model(moves: Iterable[UsualMove]) -> tuple[list[str], list[int]]:
    """Return the words for a script, and for each of its tasks the position of its move."""
    models: dict[tuple[str, ...], list[int]] = {}
    listed = list(moves)
    for position, move in enumerate(listed):
        models.setdefault(move.model, []).append(position)
    words, order = [str(len(listed[0].texts))], list[int]()
    for model, positions in models.items():
        words += (str(len(positions)), *model)
        for position in positions:
            words += listed[position].texts
        order += positions
    return words, order


def is_by_holder(transition: Transition) -> bool:
    """Return whether a holder writes under its lease, and none of what is seldom written."""
    before, after, lease = transition.before, transition.after, transition.before.lease
    return (
        lease is not None
        and transition.lease == lease.id
        and before.fence > 0  # so the record is complete
        and before.failure is None
        and record.has_same_rare_facts(before, after)
        and transition.stage is not None
        and transition.stage.index == after.last_completed > before.last_completed
        and not transition.follows
        and transition.audit is None
        and transition.payload is None
        and not transition.drop_stages
        and not transition.not_if_moved_on
        and not transition.not_if_busy
        and not transition.not_without_checkpoint
    )


def start_element(task: Task) -> str:
    """Return the element for the start of a leased task, or nothing if the list has it already."""
    lease = task.lease
    if lease is None or not event_log.is_start_implied(task, lease.id):
        return ""
    return event_log.start_element(task, lease.owner)


def version_element(transition: Transition) -> str:
    """Return the element for the version that a transition makes."""
    events = event_log.encode_events(transition.events)
    return f"{transition.after.version}\n{transition.request}\n{events}"


# -- completions


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


# -- stages that are not the last


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
