"""Workers and alerts at the command line; tests/cli/test_worker.py drains a real one."""

from pathlib import Path

from holdfast.cli.exits import Exit
from holdfast.testing.contract.hands import beat as made_up
from tests.cli.world import World


def beat(world: World) -> None:
    said = made_up("w-1", slots=4, running=1, queues=("default",))
    world.do(lambda made: made.app.store.renew(said, [], lease_seconds=30))


def test_workers_are_listed_in_eighty_columns(world: World) -> None:
    world.send()
    assert "start one: `holdfast worker APP`" in world.cli("workers", "list").output
    beat(world)
    head, line = world.cli("workers", "list").stdout.splitlines()
    assert head.split() == ["WORKER", "STATE", "BUSY", "SEEN", "QUEUES"]
    assert line.split()[:3] == ["w-1", "live", "1/4"]
    assert line.split()[-1] == "default"


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
    [alert] = world.json("alerts")["alerts"]
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
    assert (told.exit_code, told.output) == (0, "no alert stands\n")


def test_a_store_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    result = World(tmp_path / "none.db").cli("alerts")
    assert result.exit_code == Exit.STORE
    assert result.stderr.endswith("[store-unavailable]\n")
