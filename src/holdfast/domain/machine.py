"""A state machine: a table of the statuses that may follow each other, and queries on it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import StrEnum
from typing import Generic, TypeVar

from holdfast.domain.errors import IllegalTransition

S = TypeVar("S", bound=StrEnum)
C = TypeVar("C", bound=StrEnum)


class Machine(Generic[S, C]):
    """A table of transitions; ``asked`` are the commands that a person may give."""

    def __init__(
        self, table: Mapping[S, Mapping[C, S]], commands: type[C], *, asked: Set[C]
    ) -> None:
        self.table, self.commands, self.asked = table, commands, asked

    def can(self, status: S, command: C) -> bool:
        return command in self.table[status]

    def legal(self, status: S) -> tuple[C, ...]:
        """Return the commands that a person may ask for now."""
        row = self.table[status]
        return tuple(command for command in self.commands if command in self.asked & row.keys())

    def step(self, status: S, command: C) -> S:
        try:
            return self.table[status][command]
        except KeyError:
            raise IllegalTransition(status, command, self.legal(status)) from None
