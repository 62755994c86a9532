"""The translation and comparison of calls about triggers and plans in a world with a shadow.

A trigger's lease is its version, so there is nothing to translate. A plan's lease has a random id
and a fence that only has to rise: each store gets its own, and the comparison leaves both out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import HoldfastError
from holdfast.domain.plan.plan import Plan, PlanApplied, PlanChange, PlanStale
from holdfast.ports import DuePlans, PlanPage
from verify.simulation.stores.likeness import NO_LEASE


class PlanLeases:
    """The pairs of leases: which of the watched store is which of the other."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], str] = {}

    def learn(self, model: DuePlans, other: DuePlans) -> None:
        theirs = {plan.id: plan.lease for plan in other.plans}
        for plan in model.plans:
            lease = theirs.get(plan.id)
            if plan.lease is not None and lease is not None:
                self._ids[plan.id, plan.lease.id] = lease.id

    def translate(
        self, verb: str, given: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        if verb == "plans.renew":
            return (given[0], self._ids.get((given[0], given[1]), NO_LEASE)), named
        if verb == "plans.apply":
            change: PlanChange = given[0]
            if change.lease is not None:
                lease = self._ids.get((change.after.id, change.lease), NO_LEASE)
                return (replace(change, lease=lease),), named
        return given, named


def essence(answer: Any) -> Any:
    """Return the part of an answer about triggers or plans that must be alike."""
    match answer:
        case Plan():
            seen: Any = _plan(answer)
        case PlanApplied(plan) | PlanStale(plan):
            seen = [type(answer).__name__, plan and _plan(plan)]
        case DuePlans() | PlanPage():
            seen = [_plan(plan) for plan in answer.plans]
        case HoldfastError():
            seen = type(answer).__name__
        case list() | tuple():
            seen = [essence(one) for one in answer]
        case dict():
            seen = sorted((index, msgspec.to_builtins(one)) for index, one in answer.items())
        case _:
            seen = msgspec.json.decode(msgspec.json.encode(answer))
    return seen


def _plan(plan: Plan) -> Any:
    lease = plan.lease and replace(plan.lease, id="", fence=0)
    return msgspec.json.decode(msgspec.json.encode(replace(plan, lease=lease, fence=0)))
