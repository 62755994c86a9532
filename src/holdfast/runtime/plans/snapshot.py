"""A snapshot of a plan and its members, as the driver read them and has written since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from holdfast.domain.plan.members import to_undo
from holdfast.domain.plan.plan import (
    SLOTTED,
    WAITING,
    Member,
    MemberState,
    Moves,
    Plan,
    PlanChange,
    PlanTasks,
)

REACHED = frozenset(
    {MemberState.AGAIN, MemberState.FAILED, MemberState.PAUSED, MemberState.ROLLBACK_FAILED}
)
POLLED_AGAIN = REACHED - {MemberState.AGAIN}  # a person may resume or retry them


class PlanSnapshot:
    def __init__(self, plan: Plan, tasks: PlanTasks, members: Mapping[int, Member]) -> None:
        self.plan, self.tasks = plan, tasks
        self.members = dict(members)
        self._slotted = {i for i, member in members.items() if member.state in SLOTTED}
        self._first = 0  # no member before this one waits

    def member(self, index: int) -> Member:
        return self.members.get(index, WAITING)

    def write(self, change: PlanChange, plan: Plan) -> None:
        self.plan = plan
        for index, member in change.moves:
            self._slotted.discard(index)
            if member.state is MemberState.WAITING:
                self.members.pop(index, None)
                self._first = min(self._first, index)
                continue
            self.members[index] = member
            if member.state in SLOTTED:
                self._slotted.add(index)

    @property
    def slotted(self) -> frozenset[int]:
        return frozenset(self._slotted)

    def room_after(self, moves: Moves) -> int:
        """Return how many slots are free once these moves are written."""
        most = self.plan.max_concurrency or self.plan.total
        left = sum(i in self._slotted and m.state not in SLOTTED for i, m in moves.items())
        taken = sum(i not in self._slotted and m.state in SLOTTED for i, m in moves.items())
        return most - len(self._slotted) + left - taken

    def resting(self) -> Iterator[int]:
        """Return the stopped members that a person may have resumed."""
        return (i for i, member in self.members.items() if member.state in POLLED_AGAIN)

    def to_cancel(self) -> Iterator[int]:
        """Return the members that a cancel may not have reached yet."""
        yield from self.waiting(self.plan.total)
        yield from self.skipped_members()
        yield from (i for i, member in self.members.items() if member.state in REACHED)

    def skipped_members(self) -> Iterator[int]:
        """Return the skipped members whose tasks are still to be cancelled."""
        skipped = MemberState.SKIPPED
        return (i for i, m in self.members.items() if m.state is skipped and m.version)

    def to_run(self, upto: int) -> Iterator[int]:
        """Return the members to let go, those that run again first."""
        again = MemberState.AGAIN
        if self.plan.count(again):
            yield from sorted(i for i, m in self.members.items() if m.state is again and i < upto)
        yield from self.waiting(upto)

    def waiting(self, upto: int) -> Iterator[int]:
        while self._first < self.plan.total and self._first in self.members:
            self._first += 1
        return (i for i in range(self._first, upto) if i not in self.members)

    def to_undo(self, most: int) -> list[int]:
        """Return the members to undo, the newest first."""
        newest = sorted(self.members, reverse=True)
        return list(islice((i for i in newest if to_undo(self.plan, i, self.members[i])), most))
