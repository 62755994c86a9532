"""The arguments of the scripts, packed, and their replies, read by name.

A structure comes back as a flat list of names and values.
Four scripts run for every task (insert, claim, apply, renew) and answer by position, which is
shorter. Each of their replies is taken apart in one place only, next to the names of its parts:
`submission.insertion_of`, `claim.ClaimReply`, `transition.outcome_of` and `writes.renew`. A script
that writes puts its answer into an envelope, which `Partition.write` opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

Reply = dict[str, Any]

pack = msgspec.msgpack.Encoder().encode


class ServerTime(NamedTuple):
    """The two times of a server, which only a test sets apart."""

    now: float  # leases and due times are judged by it
    wall: float


def by_name(reply: Sequence[Any]) -> Reply:
    """Return the values of a reply by their names."""
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def each_by_name(replies: Sequence[Sequence[Any]]) -> list[Reply]:
    return [by_name(reply) for reply in replies]
