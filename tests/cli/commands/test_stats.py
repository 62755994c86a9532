"""`holdfast stats`."""

import pytest

from holdfast.domain.task.state import Status
from holdfast.stores.sqlite import SqliteStore
from tests.support.cli.world import World


def test_stats_count_tasks_moves_and_refusals(world: World) -> None:
    done = world.send()
    world.work_until_rested(done)
    world.failed()
    world.cli("tasks", "pause", done)
    stats = world.json("stats")
    assert stats["byStatus"][Status.COMPLETED] == 1
    assert stats["byQueue"]["default"]["parked"] == 1
    assert stats["refused"] == {f"{Status.COMPLETED} pause": 1}
    moved = {(move["from"], move["to"]): move["count"] for move in stats["transitions"]}
    assert moved[Status.RUNNING, Status.COMPLETED] == 1
    told = world.cli("stats").stdout
    assert max(map(len, told.splitlines())) <= 80
    assert f"{Status.COMPLETED} pause" in told


def test_stats_say_when_the_store_is_not_durable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send()
    assert "durable" not in world.cli("stats").stdout
    monkeypatch.setattr(SqliteStore, "durable", False)
    assert "durable  NO: a crash may lose tasks" in world.cli("stats").stdout
