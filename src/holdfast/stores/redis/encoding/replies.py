"""Replies of the scripts: a structure is a flat list of names and values, read by name.

Four scripts run for every task (insert, claim, apply, renew) and answer by position, which is
shorter. Each of their replies is taken apart in one place only, next to the names of its parts:
`messages.insertion_of`, `messages.ClaimReply`, `messages.outcome_of` and `writes.renew`. A script
that writes puts its answer into an envelope, which `Partition.write` opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Reply = dict[str, Any]


class ServerTime(NamedTuple):
    """The two times of a server, which only a test sets apart."""

    now: float  # leases and due times are judged by it
    wall: float


def named(reply: Sequence[Any]) -> Reply:
    """Return the values of a reply by their names."""
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def all_named(replies: Sequence[Sequence[Any]]) -> list[Reply]:
    return [named(reply) for reply in replies]
