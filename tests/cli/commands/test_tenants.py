"""`holdfast tenants`: `show`, `hold`, `release` and `holds`."""

from holdfast.cli.exit_codes import Exit
from holdfast.domain.task.state import Status
from tests.support.cli.world import World


def test_a_tenant_shows_what_to_do_next(world: World) -> None:
    failed = world.failed(tenant="t-1")
    waiting = [world.upgrade(tenant="t-1") for _ in range(2)]
    [tenant] = world.json("tenants", "show", "t-1")["tenants"]
    assert tenant["active"]["taskId"] == failed
    assert tenant["hasCheckpoint"] is True
    assert (tenant["waiting"], tenant["line"]) == (2, waiting)
    assert tenant["lockedBy"] is None
    assert tenant["fence"] > 0
    assert f"holdfast suspended resume {failed}" in tenant["next"]
    told = world.cli("tenants", "show", "t-1").stdout
    assert all(task_id in told for task_id in (failed, *waiting))
    assert max(map(len, told.splitlines())) <= 80


def test_a_tenant_at_rest_names_its_latest_task(world: World) -> None:
    done = world.upgrade(tenant="t-1")
    world.work_until_rested(done)
    [tenant] = world.json("tenants", "show", "t-1")["tenants"]
    assert tenant["active"] is None
    assert tenant["next"] == (
        f"Nothing runs or waits; its latest task, {done}, is {Status.COMPLETED}."
    )


def test_a_tenant_nobody_has_heard_of_is_not_found(world: World) -> None:
    world.upgrade(tenant="t-1")
    assert world.cli("tenants", "show", "t-1", "t-9").exit_code == Exit.NOT_FOUND
    assert world.cli("tenants", "show", "no good name").exit_code == Exit.INVALID


def test_a_tenant_is_held_and_released(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    held = world.json("tenants", "hold", "t-1", "--reason", "being moved", "--until", "2h")
    assert held == {"tenantId": "t-1", "held": True, "changed": True, "waitingFor": None}
    assert "held (it was held already)" in world.cli("tenants", "hold", "t-1").stdout
    [hold] = world.json("tenants", "holds")["holds"]
    assert (hold["tenantId"], hold["reason"]) == ("t-1", "being moved")
    assert hold["actor"].startswith("cli:")
    assert "being moved" in world.cli("tenants", "holds").stdout
    assert "being moved" in world.cli("tenants", "show", "t-1").stdout
    assert world.json("tenants", "show", "t-1")["tenants"][0]["held"] == hold
    told = " ".join(world.cli("why", task_id).stdout.split())
    assert "tenant t-1 has been held for" in told
    assert "holdfast tenants release t-1" in told
    doctor = " ".join(world.cli("doctor").stdout.split())
    assert "tenant t-1 has been held for" in doctor
    assert world.json("queues", "list")["queues"][0]["claimingPaused"] is None
    assert world.json("tenants", "release", "t-1")["changed"] is True
    assert "was not held" in world.cli("tenants", "release", "t-1").stdout
    assert "no tenant is held" in world.cli("tenants", "holds").stdout
    world.work_until_rested(task_id)
    commands = [entry["command"] for entry in world.json("audit")["entries"]]
    assert commands[-3:] == ["release", "hold", "hold"]


def test_bad_input_is_refused(world: World) -> None:
    world.upgrade(tenant="t-1")
    assert world.cli("tenants", "hold", "a|b").exit_code == Exit.INVALID
    assert world.cli("tenants", "hold", "t-1", "--until", "soon").exit_code == Exit.INVALID
    assert world.json("tenants", "holds")["holds"] == []


def test_stats_have_the_tenants_that_are_held(world: World) -> None:
    world.upgrade(tenant="t-1")
    told = world.json("stats")
    assert (told["tenantsHeld"], told["holds"]) == (0, [])
    assert "held tenants" not in world.cli("stats").stdout
    world.cli(
        "tenants", "hold", "t-1", "--reason", "being moved, password=hunter2", "--until", "2h"
    )
    told = world.json("stats")
    [hold] = told["holds"]
    assert (told["tenantsHeld"], hold["tenantId"]) == (1, "t-1")
    assert hold["reason"] == "being moved, password=***"
    assert hold["until"] > hold["at"]
    shown = world.cli("stats", columns=200).stdout
    assert "held tenants" in shown
    assert f"t-1     {hold['until'][:19].replace('T', ' ')}" in shown
    assert "being moved, password=***" in shown
