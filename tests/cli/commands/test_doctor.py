"""`holdfast doctor`."""

import logging

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.cli.output.printer import PIPE_WIDTH
from holdfast.ports import Check
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.admin.store import SqliteAdmin
from holdfast.testing.contract.drivers.store_driver import beat as beat_of
from tests.support.cli.world import App, World


def test_doctor_is_content_when_nothing_is_stuck(world: World) -> None:
    world.work_until_rested(world.send())
    health = world.json("doctor")
    assert health["clean"] is True
    assert health["durable"] is True
    assert (health["findings"], health["stuck"]) == ([], [])
    assert "nothing is stuck" in world.cli("doctor").stdout


def test_doctor_shows_the_settings_of_the_store(world: World) -> None:
    world.work_until_rested(world.send())
    [check] = world.json("doctor")["checks"]
    assert (check["name"], check["good"]) == ("persistence", True)
    assert f"setting  persistence: {check['says']}" in world.cli("doctor", columns=200).stdout


def test_doctor_marks_a_setting_and_only_what_may_lose_tasks_is_not_clean(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def checks(_: SqliteAdmin) -> list[Check]:
        return [Check(name="clock", good=False, message="is behind")]

    world.work_until_rested(world.send())
    monkeypatch.setattr(SqliteAdmin, "checks", checks)
    assert world.json("doctor")["clean"] is True
    assert "setting  clock: NOT GOOD: is behind" in world.cli("doctor").stdout
    monkeypatch.setattr(SqliteStore, "durable", False)
    health = world.json("doctor", code=Exit.FAILED)
    assert (health["clean"], health["durable"]) == (False, False)


@pytest.mark.parametrize(
    ("bad", "verdict"),
    [(["persistence"], "1 setting is not good"), (["persistence", "clock"], "2 settings are not")],
)
def test_doctor_ends_with_what_the_exit_code_is_for(
    world: World, monkeypatch: pytest.MonkeyPatch, bad: list[str], verdict: str
) -> None:
    async def checks(_: SqliteAdmin) -> list[Check]:
        return [Check(name=name, good=False, message="is not as it should be") for name in bad]

    world.work_until_rested(world.send())
    monkeypatch.setattr(SqliteAdmin, "checks", checks)
    monkeypatch.setattr(SqliteStore, "durable", False)
    told = world.cli("doctor")
    assert told.exit_code == Exit.FAILED
    assert told.stdout.splitlines()[-1].startswith(verdict)
    world.send()
    assert world.cli("doctor").stdout.splitlines()[-1].startswith(f"1 finding, {verdict}")
    monkeypatch.setattr(SqliteStore, "durable", True)
    assert world.cli("doctor").stdout.splitlines()[-1] == "1 finding"


def test_doctor_fits_80_columns_and_says_all_in_a_pipe_on_one_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "only snapshots, so that " + "a crash may lose what came after the last of them, " * 3
    address = "a-word-that-is-longer-than-the-terminal-is-wide/" * 2

    async def checks(_: SqliteAdmin) -> list[Check]:
        return [
            Check(name="persistence", good=False, message=says.strip()),
            Check(name="clock", good=False, message=f"see {address} there"),
        ]

    world.upgrade(tenant="t-1")
    monkeypatch.setattr(SqliteAdmin, "checks", checks)
    told = world.cli("doctor").stdout.splitlines()
    long = {word for line in told if len(line) > 80 for word in line.split()}
    assert address in long
    assert long <= {address, "store", world.url}
    first = next(number for number, line in enumerate(told) if line.startswith("setting"))
    assert told[first].startswith("setting  persistence: NOT GOOD: only snapshots")
    assert told[first + 1].startswith("         ")
    stuck = next(number for number, line in enumerate(told) if line.startswith("stuck"))
    assert told[stuck + 1].startswith("       ")
    piped = world.cli("doctor", columns=PIPE_WIDTH).stdout
    assert f"setting  persistence: NOT GOOD: {says.strip()}\n" in piped


def test_doctor_says_a_setting_once_and_others_warn_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opens = SqliteStore.open

    async def open_and_warn(store: SqliteStore) -> None:
        await opens(store)
        logging.getLogger("holdfast.stores").warning("persistence: only snapshots")

    world.send()
    caplog.clear()  # that nobody serves its queue
    monkeypatch.setattr(SqliteStore, "open", open_and_warn)
    world.cli("doctor")
    assert caplog.messages == []
    world.cli("stats")
    assert caplog.messages == ["persistence: only snapshots"]


def test_doctor_tells_of_work_that_nobody_serves(world: World) -> None:
    task_id = world.send()
    health = world.json("doctor", code=Exit.FAILED)
    assert health["oldestReady"]["taskId"] == task_id
    [told] = health["stuck"]
    assert told.startswith("queue default: 1 task ready, the next is of type mail.send")


def test_doctor_tells_of_a_lock_that_nobody_frees(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")

    async def die_at_once(made: App) -> None:
        await made.app.store.tasks.claim(
            "w-1", request="r", queues=["default"], limit=1, lease_seconds=-60.0
        )

    world.do(die_at_once)
    [told] = world.json("doctor", code=Exit.FAILED)["stuck"]
    assert told.startswith(f"task {task_id}: the lease of w-1 lapsed 1m")
    assert "tenant t-1 is locked" in told


def test_doctor_does_not_count_on_the_owner_of_a_lapsed_lease(world: World) -> None:
    task_id, waiting = world.send(), world.send()

    async def beat_and_die(made: App) -> None:
        await made.app.store.tasks.renew(beat_of("w-1", slots=2, running=0), [], lease_seconds=30)
        await made.app.store.tasks.claim(
            "w-1", request="r", queues=["default"], limit=1, lease_seconds=-60.0
        )

    world.do(beat_and_die)
    health = world.json("doctor", code=Exit.FAILED)
    assert [worker["live"] for worker in health["workers"]] == [False]
    unserved, lapsed = health["stuck"]
    assert "no live worker serves it" in unserved
    assert lapsed.startswith(f"task {task_id}: the lease of w-1 lapsed")
    assert health["oldestReady"]["taskId"] == waiting
    told = world.cli("doctor", columns=200).stdout
    assert "none alive; w-1 (last seen " in told


def test_doctor_says_when_a_live_worker_was_last_seen(world: World) -> None:
    world.work_until_rested(world.send())

    async def beat(made: App) -> None:
        await made.app.store.tasks.renew(beat_of("w-1", slots=2, running=0), [], lease_seconds=30)

    world.do(beat)
    assert "1 live, 0 of 2 slots busy: w-1 (last seen " in world.cli("doctor").stdout
