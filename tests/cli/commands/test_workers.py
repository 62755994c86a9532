"""Workers and alerts at the command line; tests/cli/process/test_worker.py drains a real one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.domain import notification
from holdfast.insight.health import examine
from holdfast.insight.monitor import Monitor
from holdfast.ports import LIVE_LEASES, WorkerInfo
from holdfast.registry import OWN_QUEUES
from holdfast.stores.sqlite.views.store import SqliteViews
from holdfast.testing.contract.drivers.store_driver import beat as made_up
from tests.support.cli.scene import Scene
from tests.support.cli.world import FINE, World


def beat(world: World, name: str = "w-1", **fields: Any) -> None:
    said = made_up(name, **{"slots": 4, "running": 1} | fields)
    world.do(lambda made: made.app.store.tasks.renew(said, [], lease_seconds=30))


def test_workers_are_listed_in_eighty_columns(world: World) -> None:
    world.send()
    assert "start one: `holdfast worker APP`" in world.cli("workers", "list").output
    beat(world)
    head, line = world.cli("workers", "list").stdout.splitlines()
    assert head.split() == ["WORKER", "STATE", "BUSY", "QUEUES", "SEEN"]
    assert line.split()[:4] == ["w-1", "live", "1/4", "default"]


def listed_with(world: World, **queues: Sequence[str]) -> list[str]:
    """The lines of workers so named, ``w_1`` as ``w-1``, that serve these."""
    for name, served in queues.items():
        beat(world, name.replace("_", "-"), slots=128, running=1, queues=served)
    told = world.cli("workers", "list").stdout.splitlines()
    assert max(map(len, told)) <= 80
    assert told[0].split()[:4] == ["WORKER", "STATE", "BUSY", "QUEUES"]
    return told[1:]


def test_the_queues_of_a_worker_with_a_long_name_are_seen(world: World) -> None:
    name = "a_long_name_of_host_12345_ab12"
    assert len(name) == 30
    [line] = listed_with(world, **{name: (*OWN_QUEUES, "default", "mail.bulk")})
    assert line.split()[:5] == [name.replace("_", "-"), "live", "1/128", "default,", "mail.bulk"]
    assert "holdfast" not in line
    [worker] = world.json("workers", "list")["workers"]
    assert worker["queues"] == [*OWN_QUEUES, "default", "mail.bulk"], "JSON has all"


def test_of_many_queues_as_many_as_fit_are_seen_and_when_it_was_seen_is_not(world: World) -> None:
    many = [f"queue-{number}" for number in range(10)]
    [line] = listed_with(world, a_long_name_of_host_12345_ab12=many)
    assert line.split()[3:5] == ["queue-0,", "queue-1,"]
    assert line.endswith("…")


def test_a_queue_of_the_engine_is_seen_where_not_every_worker_serves_it(world: World) -> None:
    first, second = listed_with(world, w_1=(*OWN_QUEUES, "default"), w_2=(OWN_QUEUES[0], "default"))
    assert first.split()[3:5] == ["default,", notification.QUEUE]
    assert second.split()[3] == "default"


def test_one_that_serves_only_queues_of_the_engine_has_these_shown(world: World) -> None:
    [line] = listed_with(world, w_1=OWN_QUEUES)
    assert line.split()[3:5] == [f"{OWN_QUEUES[0]},", OWN_QUEUES[1]]


def test_one_that_is_gone_is_busy_with_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(world)
    [gone] = world.do(lambda made: made.app.store.views.workers(live_within_seconds=-1))

    async def workers(*_: object, **__: object) -> list[WorkerInfo]:
        return [gone]

    monkeypatch.setattr(SqliteViews, "workers", workers)
    line = world.cli("workers", "list").stdout.splitlines()[1]
    assert line.split()[:3] == ["w-1", "gone", "-"]
    assert world.json("workers", "list")["workers"][0]["running"] == 1


@pytest.mark.parametrize(
    "command",
    [
        ("workers", "list"),
        ("queues", "list"),
        ("alerts",),
        ("doctor",),
        ("why", "TASK"),
        ("plans", "show", "up-7"),
    ],
    ids=" ".join,
)
def test_all_commands_agree_on_who_is_alive(
    world: World, monkeypatch: pytest.MonkeyPatch, command: Sequence[str]
) -> None:
    task_id = world.send()
    world.plan("up-7", {"t-1": FINE})
    asked: set[float] = set()

    async def workers(_: object, *, live_within_seconds: float) -> list[WorkerInfo]:
        asked.add(live_within_seconds)
        return []

    monkeypatch.setattr(SqliteViews, "workers", workers)
    world.cli(*(task_id if word == "TASK" else word for word in command))
    assert asked == {LIVE_LEASES * 30}


def test_one_that_is_drained_is_shown_so_until_it_has_ended(world: World) -> None:
    beat(world)
    assert world.cli("workers", "drain", "w-1").stdout == "w-1  draining\n"
    assert world.cli("workers", "drain", "w-1").stdout == "w-1  draining (no change)\n"
    assert world.cli("workers", "list").stdout.splitlines()[1].split()[1] == "draining"
    entries = world.json("audit", "--task", "worker:w-1")["entries"]
    assert [one["command"] for one in entries] == ["drain", "drain"], "whoever asks is noted"


def test_one_that_nobody_has_seen_cannot_be_drained(world: World) -> None:
    world.send()
    result = world.cli("workers", "drain", "w-2")
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stderr == "error: no worker w-2 has been seen lately [worker-not-found]\n"
    assert world.json("audit")["entries"] == []


def test_alerts_are_judged_by_one_look(world: World) -> None:
    world.send()
    told = world.json("alerts")
    assert told["backlog"] == {"*": 10_000}
    [alert] = told["alerts"]
    assert alert == {
        "code": "no-workers",
        "severity": "page",
        "queue": "default",
        "group": None,
        "says": "1 ready, no worker serves queue default",
        "value": 1,
        "threshold": 0,
    }
    head, line = world.cli("alerts").stdout.splitlines()
    assert head.split() == ["ALERT", "SEVERITY", "QUEUE", "MESSAGE"]
    assert line.split()[:3] == ["no-workers", "page", "default"]
    beat(world)
    told = world.cli("alerts")
    assert (told.exit_code, told.stdout) == (0, "")
    assert told.stderr == (
        "no alert is active\nthresholds come from HOLDFAST_BACKLOG in this shell: *=10000\n"
    )


def test_a_store_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    result = World(tmp_path / "none.db").cli("alerts")
    assert result.exit_code == Exit.STORE
    assert result.stderr.endswith("[store-unavailable]\n")


async def told(scene: Scene) -> tuple[list[str], list[str]]:
    """By the alerts, and by the doctor."""
    found = await Monitor(scene.app).snapshot()
    health = await examine(scene.store, fix=False, lease_seconds=30, hide=scene.app.redactor)
    return [one.message for one in found.alerts if one.code == "no-workers"], list(health.stuck)


async def test_a_retry_that_no_worker_is_there_for_is_told_by_alerts_and_doctor(
    scene: Scene,
) -> None:
    await scene.submit()
    await scene.beat()
    await scene.fail(await scene.claim(), retry_seconds=100)
    scene.clock.advance(99)
    assert await told(scene) == ([], []), "nothing is due yet"
    scene.clock.advance(15)
    assert await told(scene) == ([], []), "a restart takes so long"
    scene.clock.advance(36)
    alerts, stuck = await told(scene)
    assert alerts == ["no worker is alive: a task was due 50 s ago"]
    assert stuck == ["a task was due 50s ago, and no worker is alive to move it"]
    await scene.beat("w-2")
    assert await told(scene) == ([], [])


async def test_a_lease_of_the_only_worker_that_was_killed_is_told(scene: Scene) -> None:
    task_id = await scene.submit()
    await scene.beat()
    await scene.claim()
    scene.clock.advance(46)
    alerts, stuck = await told(scene)
    assert alerts == ["no worker is alive: a lease has lapsed 16 s ago"]
    [one] = stuck
    assert one.startswith(f"task {task_id}: the lease of w-1 lapsed 16s ago")


async def test_a_plan_that_no_worker_drives_is_told(scene: Scene) -> None:
    await scene.plan(["t-1", "t-2"])
    scene.clock.advance(20)
    alerts, stuck = await told(scene)
    assert alerts == ["no worker is alive: a plan was due 20 s ago"]
    assert stuck == ["a plan was due 20s ago, and no worker is alive to move it"]


async def test_a_trigger_that_no_worker_fires_is_told(scene: Scene) -> None:
    await scene.app.schedule.every("30s", scene.flow, 1, name="half-minutely")
    scene.clock.advance(29)
    assert await told(scene) == ([], [])
    scene.clock.advance(31)
    alerts, stuck = await told(scene)
    assert alerts == ["no worker is alive: a trigger was due 30 s ago"]
    assert stuck == ["a trigger was due 30s ago, and no worker is alive to move it"]
