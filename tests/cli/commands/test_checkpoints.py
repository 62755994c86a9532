"""`holdfast checkpoints get`, `put` and `remove`."""

import json

from holdfast.cli.exit_codes import Exit
from holdfast.domain.task.state import Status
from tests.support.cli.world import World


def test_a_checkpoint_is_shown_changed_and_put(world: World) -> None:
    task_id = world.failed(tenant="t-1")
    read = world.json("checkpoints", "get", task_id)
    assert read["completedStageNames"] == ["snapshot"]
    assert '"taken": true' in world.cli("checkpoints", "get", task_id).stdout
    read["customData"] = {"taken": 7}
    put = world.cli(
        "checkpoints", "put", task_id, "-", "--reason", "by hand", "--json", answer=json.dumps(read)
    )
    assert put.exit_code == Exit.OK, put.output
    assert json.loads(put.stdout) == {"taskId": task_id, "version": read["version"] + 1}
    again = world.cli("checkpoints", "put", task_id, json.dumps(read))
    assert again.exit_code == Exit.REFUSED
    assert "of version 3, not 2" in " ".join(again.stderr.split())
    assert world.json("checkpoints", "get", task_id)["customData"] == {"taken": 7}
    assert world.json("tasks", "show", task_id)["status"] == Status.FAILED
    entries = world.json("audit")["entries"]
    told = [(one["command"], one["reason"], one["refused"]) for one in entries]
    assert told[:2] == [
        ("put-checkpoint", "", "checkpoint-conflict"),
        ("put-checkpoint", "by hand", None),
    ]
    assert entries[0]["actor"].startswith("cli:")


def test_a_checkpoint_is_removed_if_it_has_that_version(world: World) -> None:
    task_id = world.failed()
    assert world.cli("checkpoints", "remove", task_id, "--version", "9").exit_code == Exit.REFUSED
    gone = world.json("checkpoints", "remove", task_id, "--version", "2", "--reason", "anew")
    assert gone == {"taskId": task_id, "version": None}
    assert world.json("checkpoints", "get", task_id, code=Exit.NOT_FOUND) is None
    assert "has no checkpoint" in world.cli("checkpoints", "get", task_id).stderr
    again = world.cli("checkpoints", "remove", task_id)
    assert again.exit_code == Exit.REFUSED
    assert "[checkpoint-gone]" in again.stderr


def test_bad_input_is_refused(world: World) -> None:
    task_id, waiting = world.failed(), world.upgrade()
    for wrong in ("{", "[]", "{}", '{"lastCompletedStageIndex": 0}'):
        assert world.cli("checkpoints", "put", task_id, wrong).exit_code == Exit.INVALID, wrong
    for text in (b'{"x": "\xff"}', b"\xff"):
        told = world.cli("checkpoints", "put", task_id, "-", answer=text)
        assert told.exit_code == Exit.INVALID
        assert "not JSON" in told.stderr
    assert "must be an object" in world.cli("checkpoints", "put", task_id, "[]").stderr
    assert world.cli("checkpoints", "remove", waiting).exit_code == Exit.REFUSED
    for verb in (["get", "nobody"], ["put", "nobody", "{}"], ["remove", "nobody"]):
        code = world.cli("checkpoints", *verb).exit_code
        assert code in {Exit.NOT_FOUND, Exit.INVALID}
