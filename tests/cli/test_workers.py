"""Workers and alerts at the command line; tests/cli/test_worker.py drains a real one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.exits import Exit
from holdfast.domain import telling
from holdfast.ports import WorkerInfo
from holdfast.registry import OWN_QUEUES
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.contract.hands import beat as made_up
from tests.cli.world import World


def beat(world: World, name: str = "w-1", **fields: Any) -> None:
    said = made_up(name, **{"slots": 4, "running": 1} | fields)
    world.do(lambda made: made.app.store.renew(said, [], lease_seconds=30))


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
    assert first.split()[3:5] == ["default,", telling.QUEUE]
    assert second.split()[3] == "default"


def test_one_that_serves_only_queues_of_the_engine_has_these_shown(world: World) -> None:
    [line] = listed_with(world, w_1=OWN_QUEUES)
    assert line.split()[3:5] == [f"{OWN_QUEUES[0]},", OWN_QUEUES[1]]


def test_one_that_is_gone_is_busy_with_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(world)
    [gone] = world.do(lambda made: made.app.store.workers(live_within_seconds=-1))

    async def workers(*_: object, **__: object) -> list[WorkerInfo]:
        return [gone]

    monkeypatch.setattr(SqliteStore, "workers", workers)
    line = world.cli("workers", "list").stdout.splitlines()[1]
    assert line.split()[:3] == ["w-1", "gone", "-"]
    assert world.json("workers", "list")["workers"][0]["running"] == 1


def test_one_that_is_drained_is_shown_so_until_it_has_ended(world: World) -> None:
    beat(world)
    assert world.cli("workers", "drain", "w-1").stdout == "w-1  draining\n"
    assert world.cli("workers", "drain", "w-1").stdout == "w-1  draining, as it was\n"
    assert world.cli("workers", "list").stdout.splitlines()[1].split()[1] == "draining"
    entries = world.json("audit", "--task", "worker:w-1")["entries"]
    assert [one["command"] for one in entries] == ["drain", "drain"], "whoever asks is noted"


def test_one_that_nobody_has_seen_cannot_be_drained(world: World) -> None:
    world.send()
    result = world.cli("workers", "drain", "w-2")
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stderr == "error: no worker w-2 was seen lately [worker-not-found]\n"
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
        "says": "1 ready, no worker serves queue default",
        "value": 1,
        "threshold": 0,
    }
    head, line = world.cli("alerts").stdout.splitlines()
    assert head.split() == ["ALERT", "SEVERITY", "QUEUE", "SAYS"]
    assert line.split()[:3] == ["no-workers", "page", "default"]
    beat(world)
    told = world.cli("alerts")
    assert (told.exit_code, told.stdout) == (0, "")
    assert told.stderr == (
        "no alert stands\nbacklogs are judged by HOLDFAST_BACKLOG as it is here: *=10000\n"
    )


def test_a_store_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    result = World(tmp_path / "none.db").cli("alerts")
    assert result.exit_code == Exit.STORE
    assert result.stderr.endswith("[store-unavailable]\n")
