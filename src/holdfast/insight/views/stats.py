"""The JSON views of the counts in a store."""

from __future__ import annotations

from typing import Annotated

from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.insight.views import fields
from holdfast.insight.views.queues import example_places
from holdfast.insight.views.tasks import TaskView
from holdfast.insight.views.tenants import HoldCount, HoldView
from holdfast.insight.views.view import FORBIDS_OTHERS, TypedDict, View, about, example
from holdfast.ports import Moves, Stats

MoveView = TypedDict(
    "MoveView",
    {
        "from": Annotated[Status, example(Status.PENDING)],
        "to": Annotated[Status, example(Status.RUNNING)],
        "count": Annotated[int, example(10)],
        "meanDwellSeconds": Annotated[float, example(0.02)],
    },
)
FORBIDS_OTHERS(MoveView)


class CountsView(View):
    """The counts that the command line and the API share."""

    byStatus: Annotated[dict[Status, int], example(example_statuses())]
    byQueue: Annotated[dict[str, dict[Place, int]], example({"default": example_places()})]
    transitions: list[MoveView]
    refused: Annotated[
        dict[str, int],
        example(
            {f"{Status.COMPLETED} {Command.CANCEL}": 1},
            "How often a command was refused, by STATUS and command",
        ),
    ]


class StoreCounts(CountsView, HoldCount):
    durable: fields.Durable


class _Newest(View):
    counts: Annotated[
        dict[str, int],
        example({"pending": 3, "processing": 1, "retry": 0, "suspended": 0, "completed": 9}),
    ]
    latest: list[TaskView]


class StatsView(_Newest, CountsView):
    checkpoints: Annotated[int, example(1, "The checkpoints of tasks that have not settled")]
    tenantLocks: Annotated[int, example(1)]
    tenantsHeld: Annotated[int, example(1)]
    holds: Annotated[list[HoldView], about("The first 100 holds, by the names of the tenants")]
    liveWorkers: Annotated[int, example(1)]
    durable: fields.Durable
    degraded: bool


def example_statuses() -> dict[Status, int]:
    return dict.fromkeys(Status, 0) | {Status.RUNNING: 1, Status.COMPLETED: 9}


def counts_view(stats: Stats) -> CountsView:
    return {
        "byStatus": {status: stats.by_status.get(status, 0) for status in Status},
        "byQueue": {
            queue: {place: places.get(place, 0) for place in Place}
            for queue, places in stats.by_queue.items()
        },
        "transitions": [_move_view(move) for move in stats.transitions],
        "refused": dict(stats.refused),
    }


def _move_view(move: Moves) -> MoveView:
    return {
        "from": move.before,
        "to": move.after,
        "count": move.count,
        "meanDwellSeconds": mean_dwell_seconds(move),
    }


def mean_dwell_seconds(move: Moves) -> float:
    return move.dwell_seconds / move.count if move.count else 0.0
