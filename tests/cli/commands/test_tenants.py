"""`holdfast tenants show`."""

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
