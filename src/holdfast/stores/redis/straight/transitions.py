"""Transitions on the straight path: completions, stage commits, and how their scripts are sent."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from holdfast.domain.errors import StoreError
from holdfast.domain.task.placement import Next
from holdfast.domain.task.transition import Outcome, Transition
from holdfast.stores.redis import scripts
from holdfast.stores.redis.encoding.transition import outcome_of
from holdfast.stores.redis.partition import Partition, chunks
from holdfast.stores.redis.straight.moves import (
    UsualMove,
    completed_task,
    usual_completion,
    usual_stage_commit,
    words_by_model,
)

STRAIGHT_MOVES = 64  # transitions of one script

# A transition's position in its batch, and the outcome; None: the general script must write it.
Answer: TypeAlias = tuple[int, Outcome | StoreError | None]
Outcomes: TypeAlias = dict[int, Outcome | StoreError | None]


class SortedMoves:
    """A batch of transitions, sorted by the script that is to write them."""

    def __init__(self, part: Partition, batch: Sequence[Transition]) -> None:
        self._part, self._batch = part, batch
        self._completions: dict[int, UsualMove] = {}
        self._stage_commits: dict[int, UsualMove] = {}
        self.general: list[int] = []  # positions
        # Two writes of one task keep their order.
        if len({one.after.id for one in batch}) < len(batch):
            self.general += range(len(batch))
            return
        for position, transition in enumerate(batch):
            self._sort(position, transition)

    def _sort(self, position: int, transition: Transition) -> None:
        if transition.next is Next.SETTLED:
            move = usual_completion(transition, self._part.terms.tombstone_seconds)
            moves = self._completions
        else:
            move, moves = usual_stage_commit(transition), self._stage_commits
        if move is None:
            self.general.append(position)
        else:
            moves[position] = move

    def calls(self) -> Iterator[Awaitable[Sequence[Answer]]]:
        """Yield the calls of the straight scripts."""
        for some in chunks([*self._completions], STRAIGHT_MOVES):
            yield self._complete(some)
        for some in chunks([*self._stage_commits], STRAIGHT_MOVES):
            yield self._commit_stages(some)

    async def _complete(self, positions: Sequence[int]) -> Sequence[Answer]:
        words, order = words_by_model(self._completions[one] for one in positions)
        left, failed = await self._part.write(scripts.COMPLETE_TASKS, *words)
        places = [positions[one] for one in order]
        outcomes: Outcomes = {place: completed_task(self._batch[place]) for place in places}
        return [*(outcomes | self._exceptions(places, left, failed)).items()]

    async def _commit_stages(self, positions: Sequence[int]) -> Sequence[Answer]:
        words, order = words_by_model(self._stage_commits[one] for one in positions)
        ends, left, failed = await self._part.write(scripts.COMMIT_STAGES, *words)
        places = [positions[one] for one in order]
        outcomes: Outcomes = {
            place: outcome_of(self._batch[place], (b"stayed", None, end))
            for place, end in zip(places, ends, strict=True)
        }
        return [*(outcomes | self._exceptions(places, left, failed)).items()]

    def _exceptions(
        self, places: Sequence[int], left: Iterable[int], failed: Sequence[Any]
    ) -> Outcomes:
        """Return the outcomes of what was not written, which the script tells by number."""
        found: Outcomes = {places[number - 1]: None for number in left}
        for number, text in zip(failed[::2], failed[1::2], strict=True):
            place = places[number - 1]
            found[place] = outcome_of(self._batch[place], (b"unreadable", text))
        return found
