"""The words of a script over many tasks: what tasks have in common is sent once, as their model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Transition
from holdfast.stores.redis.encoding import event_log, record


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


def chunks(positions: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    return (positions[start : start + size] for start in range(0, len(positions), size))
