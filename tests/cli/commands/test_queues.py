"""Queues that a person has paused: who sees it, and how they go on."""

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.domain import notification
from holdfast.domain.bulk import QUEUE as INTERNAL_QUEUE
from holdfast.domain.errors import IntakePaused
from holdfast.domain.task.task import By
from holdfast.engine.operations.switches import drain_worker, turn_queue
from holdfast.insight.health import examine
from holdfast.ports import Switch
from tests.support.cli.scene import Scene
from tests.support.cli.world import World


def test_a_pause_is_listed_with_who_and_why_until_it_is_resumed(world: World) -> None:
    world.send()
    done = world.json("queues", "pause", "default", "--reason", "the database is down")
    assert done == {
        "queue": "default",
        "known": True,
        "switches": [
            {"what": "intake", "paused": True, "changed": True},
            {"what": "claiming", "paused": True, "changed": True},
        ],
    }
    [queue] = world.json("queues", "list")["queues"]
    assert (queue["queue"], queue["backlog"], queue["threshold"]) == ("default", 1, 10_000)
    assert queue["intakePaused"]["reason"] == "the database is down"
    assert queue["claimingPaused"]["actor"].startswith("cli:")
    listed = world.cli("queues", "list").stdout.splitlines()
    words = listed[1].split()
    assert (words[:2], words[3:5]) == (["default", "1"], ["paused", "paused"])
    assert "the database is down" in listed[1]

    world.cli("queues", "resume", "default")
    [queue] = world.json("queues", "list")["queues"]
    assert (queue["intakePaused"], queue["claimingPaused"]) == (None, None)


@pytest.mark.parametrize("name", ["default", notification.QUEUE])
def test_how_long_its_oldest_waits_is_seen_while_a_pause_stands(world: World, name: str) -> None:
    """In 80 columns: of the long words of who paused it there is as much as fits."""
    by = By(actor="api:somebody-with-a-long-name", reason="the database is down until Monday")
    world.upgrade(queue="default")
    turned = (Switch.CLAIMING, name)
    world.do(lambda made: turn_queue(made.app.store, *turned, on=False, by=by, now=0.0))
    told = world.cli("queues", "list").stdout.splitlines()
    assert max(map(len, told)) <= 80
    columns = ["QUEUE", "WAITING", "OLDEST", "INTAKE", "CLAIMING", "BY", "REASON"]
    assert told[0].split()[:7] == columns
    [line] = [one for one in told[1:] if one.startswith(f"{name} ")]
    assert line.split()[3:5] == ["on", "paused"]
    assert all(word in line for word in (" api:", "… ", "the data", "…"))


@pytest.mark.parametrize("named", ["intake", "claiming"])
def test_one_of_the_two_can_be_named(world: World, named: str) -> None:
    world.send()
    told = world.cli("queues", "pause", "default", f"--{named}").stdout
    assert told == f"default  {named} paused\n"
    [queue] = world.json("queues", "list")["queues"]
    other = {"intake": "claiming", "claiming": "intake"}[named]
    assert queue[f"{named}Paused"] is not None
    assert queue[f"{other}Paused"] is None
    again = world.cli("queues", "pause", "default", f"--{named}").stdout
    assert again == f"default  {named} paused (no change)\n"


def test_a_paused_intake_refuses_and_what_was_done_is_in_the_audit(world: World) -> None:
    world.send()
    world.cli("queues", "pause", "default", "--intake", "--reason", "full")
    with pytest.raises(IntakePaused):
        world.send()
    world.cli("queues", "resume", "default", "--intake")
    world.send()
    entries = world.json("audit", "--task", "queue:default")["entries"]
    assert [(one["command"], one["before"], one["after"]) for one in entries] == [
        ("resume intake", "off", "on"),
        ("pause intake", "on", "off"),
    ]
    assert entries[1]["reason"] == "full"


def test_a_name_that_nothing_has_is_paused_with_force_only(world: World) -> None:
    world.send()
    refused = world.cli("queues", "pause", "defualt")
    assert refused.exit_code == Exit.INVALID
    assert refused.stderr.strip().endswith("[unknown-queue]")
    assert [one["queue"] for one in world.json("queues", "list")["queues"]] == ["default"]
    result = world.cli("queues", "pause", "defualt", "--force")
    assert result.exit_code == Exit.OK
    assert "is the name right?" in result.stderr
    assert world.json("queues", "resume", "defualt")["known"] is True, "a switch has it"


@pytest.mark.parametrize("name", ["no good", INTERNAL_QUEUE])
def test_a_queue_that_cannot_be_paused_is_refused(world: World, name: str) -> None:
    world.send()
    result = world.cli("queues", "pause", name)
    assert (result.exit_code, result.stdout) == (Exit.INVALID, "")
    assert world.json("audit")["entries"] == []


def test_a_queue_that_only_a_switch_names_is_listed(world: World) -> None:
    world.upgrade()
    world.cli("queues", "pause", "mail", "--force")
    told = world.cli("queues", "list").stdout
    assert "mail" in told
    assert "default" in told


def test_doctor_tells_of_a_paused_queue_as_of_what_waits_for_a_person(world: World) -> None:
    world.send()
    world.work_until_rested(world.send())
    world.cli("queues", "pause", "default", "--reason", "password=hunter2 was leaked")
    health = world.json("doctor")
    assert health["clean"] is True, "it is no fault"
    claiming, intake = sorted(health["waiting"])
    assert intake.startswith("intake of queue default has been paused for ")
    assert claiming.startswith("claiming of queue default has been paused for ")
    for told, what in ((intake, "intake"), (claiming, "claiming")):
        assert " by cli:" in told
        assert "was leaked" in told
        assert "hunter2" not in told
        assert f"`holdfast queues resume default --{what}`" in told
        assert f"POST /internal/queues/default/{what}/resume" in told
    shown = world.cli("doctor", columns=500).stdout
    assert f"waits for a person  {intake.split(' for ')[0]}" in shown
    world.cli("queues", "resume", "default")
    assert world.json("doctor")["waiting"] == []


async def test_a_worker_that_shall_end_does_not_wait_for_a_person(scene: Scene) -> None:
    await scene.beat()
    by = By(actor="ann", origin="", reason="")
    await drain_worker(scene.store, "w-1", by=by, now=0.0, live_within_seconds=60)
    health = await examine(scene.store, fix=False, lease_seconds=30, hide=scene.app.redactor)
    assert health.waiting == ()


@pytest.mark.parametrize("origin", ["10.0.0.7", ""])
async def test_why_names_who_has_paused_the_queue_and_how_it_goes_on(
    scene: Scene, origin: str
) -> None:
    task_id = await scene.submit()
    await scene.beat()
    by = By(actor="api:ann", origin=origin, reason="the database is down")
    now = scene.clock.now()
    await turn_queue(scene.store, Switch.INTAKE, "default", on=False, by=by, now=now)
    assert "paused" not in await scene.why(task_id), "it is in already"
    await turn_queue(scene.store, Switch.CLAIMING, "default", on=False, by=by, now=now)
    scene.clock.advance(90)
    place = f" on {origin}" if origin else ""
    assert await scene.why(task_id) == (
        "It has been ready in queue 'default' for 1m30s, but claiming of queue default has been "
        f"paused for 1m30s by api:ann{place} (the database is down); resume: "
        "`holdfast queues resume default --claiming` or "
        "POST /internal/queues/default/claiming/resume."
    )
    await turn_queue(scene.store, Switch.CLAIMING, "default", on=True, by=by, now=now)
    assert "paused" not in await scene.why(task_id)


def test_of_deliveries_the_claiming_is_meant(world: World) -> None:
    world.send()
    assert world.cli("queues", "pause", notification.QUEUE).stdout.startswith(
        "holdfast.deliveries  claiming paused"
    )
    assert world.cli("queues", "resume", notification.QUEUE).exit_code == Exit.OK
    refused = world.cli("queues", "pause", notification.QUEUE, "--intake")
    assert refused.exit_code == Exit.INVALID
    assert "pause its claiming" in refused.output
