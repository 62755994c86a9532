"""Calls that are made, and recorded in the audit, in one actor's name."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.domain import names
from holdfast.domain.task.operate import OperatorRequest, actor_named, new_request
from holdfast.domain.task.task import By

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast


class ActorCalls:
    """The base of the app's parts that act in one actor's name."""

    def __init__(self, app: Holdfast, by: By) -> None:
        self._app, self._by = app, by

    def acting_as(self, actor: str, origin: str = "") -> Self:
        """Return the same calls in this actor's name."""
        calls = copy(self)
        calls._by = actor_named(actor, origin)
        return calls

    def _new_request(self, reason: str) -> OperatorRequest:
        clock, chance = self._app.clock, self._app.chance
        return new_request(self._by, reason, now=clock.now(), request=new_id(clock, chance))

    def _by_reason(self, reason: str) -> By:
        return replace(self._by, reason=names.check_text("reason", reason))
