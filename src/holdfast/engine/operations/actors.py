"""Who asks for something, and the request that the audit records."""

from __future__ import annotations

import random

from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.domain import names
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.task import By
from holdfast.ports import Clock


def actor_named(actor: str, origin: str = "") -> By:
    """Return an actor for ``acting_as``, with names that can be stored."""
    return By(actor=names.check_text("actor", actor), origin=names.check_text("origin", origin))


def new_request(by: By, reason: str, clock: Clock, chance: random.Random) -> OperatorRequest:
    """Return a request in an actor's name; its id stays the same however often it is decided."""
    by = replace(by, reason=names.check_text("reason", reason))
    return OperatorRequest(by=by, now=clock.now(), request=new_id(clock, chance))
