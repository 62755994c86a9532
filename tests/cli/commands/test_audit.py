"""`holdfast audit`: the list of entries."""

import time

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.domain.audit import Audit
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By
from tests.support.cli.world import World


def test_audit_fits_80_columns_and_tells_the_outcome(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    world.cli("tasks", "pause", task_id)
    world.cli("tasks", "pause", task_id)
    told = world.cli("audit").stdout.splitlines()
    assert max(map(len, told)) <= 80
    assert told[0].split()[:5] == ["ID", "ACTOR", "COMMAND", "OUTCOME", "AGO"]
    refused, done = (line.split() for line in told[1:])
    short = f"…{task_id[-6:]}"
    assert (refused[0], *refused[2:5]) == (short, "pause", "refused:", "illegal-transition")
    assert (done[0], *done[2:4]) == (short, "pause", Status.PAUSED)
    assert task_id in world.cli("audit", columns=150).stdout
    assert len(world.json("audit", "--limit", "1")["entries"]) == 1


@pytest.mark.parametrize(
    ("route", "shown"),
    [
        ("POST /api/tasks/{task_id}/{command}", "tasks"),
        ("POST /internal/tasks/suspended/{task_id}/resume", "suspended resume"),
        ("POST /internal/queues/{queue}/{what}/{turning}", "queues"),
        ("POST /internal/workers/scale", "workers scale"),
    ],
)
def test_a_request_refused_at_the_door_leaves_room_for_who_and_when(
    world: World, route: str, shown: str
) -> None:
    task_id = world.upgrade(tenant="t-1")
    entry = Audit(
        task_id=task_id,
        command=route,
        by=By(actor="api:somebody-with-a-long-name", origin="10.0.0.7"),
        at=time.time(),
        before="",
        after="",
        refused="forbidden",
    )
    world.do(lambda made: made.app.store.admin.audit(entry))
    told = world.cli("audit").stdout.splitlines()
    assert max(map(len, told)) <= 80
    assert all(word in told[1] for word in ("api:some…ong-name", shown, "refused", "forbidden")), (
        told
    )
    assert world.json("audit")["entries"][0]["command"] == route


@pytest.mark.parametrize("code", ["not-suspended", "illegal-transition"])
@pytest.mark.parametrize("actor", ["api:ann", "api:somebody-with-a-long-name"])
def test_who_was_refused_what_and_why_it_was_asked_are_seen_in_80_columns(
    world: World, actor: str, code: str
) -> None:
    task_id = world.upgrade(tenant="t-1")
    by = By(actor=actor, origin="10.0.0.7", reason="the endpoint is back since this morning")
    entry = Audit(
        task_id=task_id,
        command="resume",
        by=by,
        at=time.time() - 12_000,
        before=Status.PENDING,
        after=Status.PENDING,
        refused=code,
    )
    world.do(lambda made: made.app.store.admin.audit(entry))
    told = world.cli("audit").stdout.splitlines()
    assert max(map(len, told)) <= 80
    assert told[0].split() == ["ID", "ACTOR", "COMMAND", "OUTCOME", "AGO", "REASON"]
    shown = "api:some…ong-name" if len(actor) > 20 else actor
    assert all(word in told[1] for word in (shown, f" refused: {code} ", " 3h20m ", " the e", "…"))
    wide = world.cli("audit", columns=200).stdout.splitlines()[0].split()
    assert wide[-3:] == ["REASON", "WAS", "FROM"], "what is left out first is last"


def test_a_plan_and_a_long_code_leave_the_outcome_whole(world: World) -> None:
    world.upgrade(tenant="t-1")
    by = By(actor="api:somebody-with-a-long-name")
    entry = Audit(
        task_id="trigger:every-night-at-three",
        command="a command of many words",
        by=by,
        at=time.time() - 5000,
        before="",
        after="",
        refused="store-partly-unavailable",
    )
    world.do(lambda made: made.app.store.admin.audit(entry))
    told = world.cli("audit").stdout.splitlines()
    assert max(map(len, told)) <= 80
    assert told[0].split() == ["ID", "ACTOR", "COMMAND", "OUTCOME"]
    whole = ("trigger:…hree", "api:some…ong-name", "refused: store-partly-unavailable")
    assert all(word in told[1] for word in whole)


def test_a_long_audit_goes_on_at_its_cursor(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    for command in ("pause", "resume", "cancel"):
        world.cli("tasks", command, task_id)
    first = world.json("audit", "--limit", "2")
    assert first["cursor"] == 2
    assert "more with --cursor 2" in world.cli("audit", "--limit", "2").stderr
    second = world.json("audit", "--limit", "2", "--cursor", "2")
    assert second["cursor"] is None
    commands = [entry["command"] for entry in first["entries"] + second["entries"]]
    assert commands == ["cancel", "resume", "pause"]
    assert world.json("audit", "--limit", "3")["cursor"] is None


def test_the_audit_of_one_task_is_found_among_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.operations.audit.PAGE", 2)
    wanted, other = world.upgrade(tenant="t-1"), world.upgrade(tenant="t-2")
    for task_id, command in (
        (wanted, "pause"),
        (other, "pause"),
        (other, "resume"),
        (wanted, "resume"),
        (other, "cancel"),
    ):
        world.cli("tasks", command, task_id)
    found = world.json("audit", "--task", wanted)
    assert [entry["command"] for entry in found["entries"]] == ["resume", "pause"]
    assert found["cursor"] is None
    first = world.json("audit", "--task", wanted, "--limit", "1")
    [rest] = world.json("audit", "--task", wanted, "--cursor", str(first["cursor"]))["entries"]
    assert rest["command"] == "pause"
    assert "no matching entries" in world.cli("audit", "--task", "nobody").stderr


def test_an_audit_cursor_that_is_no_number_is_wrong_usage(world: World) -> None:
    assert world.cli("audit", "--cursor", "soon").exit_code == Exit.USAGE
