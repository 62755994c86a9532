"""The JSON views of tenants and of the holds on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from holdfast.domain.redaction import Redactor
from holdfast.domain.task.envelope import iso
from holdfast.insight.views import fields
from holdfast.insight.views.tasks import TaskView, at
from holdfast.insight.views.view import Time, View, about, example
from holdfast.ports import Switch, SwitchSetting

HOLDS_SHOWN = 100  # in statistics; `holdfast tenants holds` has all
_LATER_ID = "019c1a50-2f10-7d02-9b63-0a1c2d3e4f50"


class HoldView(View):
    """A hold on a tenant. A token that is limited to tenants does not see who holds it, and why."""

    tenantId: fields.TenantId
    actor: fields.Actor
    origin: fields.Origin
    reason: Annotated[str, example("this customer is being moved")]
    at: Time
    until: Annotated[Time | None, about("null if it lasts until it is released")]


class HoldList(View):
    holds: list[HoldView]


class HoldCount(View):
    """The number of held tenants, and the first of the holds."""

    tenantsHeld: int
    holds: list[HoldView]


class TenantState(View):
    tenantId: fields.TenantId
    active: Annotated[TaskView | None, about("The first task of the tenant's line")]
    progress: Annotated[float | None, example(0.5)]
    hasCheckpoint: Annotated[bool, example(True)]
    waiting: Annotated[int, example(1)]
    line: Annotated[tuple[str, ...], example([_LATER_ID], "The first tasks behind the active task")]
    lockedBy: Annotated[str | None, example(None)]
    fence: fields.Fence
    latest: TaskView | None
    next: Annotated[
        str,
        example(
            "find the cause, then resume or discard the task", "What to do about the active task"
        ),
    ]
    held: Annotated[
        HoldView | None, example(None, "Under this hold, no worker claims tasks of the tenant")
    ]


class TenantStates(View):
    tenants: list[TenantState]


class ReleaseState(View):
    tenantId: fields.TenantId
    held: Annotated[bool, example(True)]
    changed: fields.Changed


class HoldState(ReleaseState):
    waitingFor: Annotated[
        fields.TaskId | None,
        example(
            fields.EXAMPLE_ID, "The running task, which its worker gives back at the next boundary"
        ),
    ]


def hold_view(hold: SwitchSetting, hide: Redactor, limited: bool = False) -> HoldView:
    return {
        "tenantId": hold.name,
        "actor": "" if limited else hold.by.actor,
        "origin": "" if limited else hold.by.origin,
        "reason": "" if limited else hide.text(hold.by.reason),
        "at": iso(hold.at),
        "until": at(hold.until),
    }


def hold_count_view(settings: Iterable[SwitchSetting], hide: Redactor) -> HoldCount:
    """Return how many tenants are held, and the first of the holds by the tenants' names."""
    holds = sorted((one for one in settings if one.switch is Switch.HOLD), key=lambda one: one.name)
    return {
        "tenantsHeld": len(holds),
        "holds": [hold_view(one, hide) for one in holds[:HOLDS_SHOWN]],
    }
