"""`holdfast tasks`: lists, shows and commands."""

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.domain.task.state import Status
from holdfast.insight.views.tasks import TaskView
from tests.support.cli.world import FORGED, LONG_WINDED, App, World

TENANT = "tenant-with-a-name"


def test_the_list_shows_whole_ids_in_80_columns(world: World) -> None:
    ids = [world.upgrade(tenant="tenant-with-a-name"), world.send(), world.failed(tenant="t-2")]
    result = world.cli("tasks", "list")
    assert result.exit_code == Exit.OK
    assert all(task_id in result.stdout for task_id in ids)
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "\x1b" not in result.stdout


def test_more_columns_appear_where_there_is_room(world: World) -> None:
    world.upgrade(tenant="t-1")
    assert "QUEUE" not in world.cli("tasks", "list").stdout
    assert "QUEUE" in world.cli("tasks", "list", columns=200).stdout


@pytest.mark.parametrize(
    ("filters", "left_out"),
    [
        (("--status", "failed"), "STATUS"),
        (("--type", "tenant.upgrade"), "TYPE"),
        (("--status", "failed", "--type", "tenant.upgrade", "--tenant", TENANT), "TENANT"),
    ],
)
def test_what_a_filter_says_already_makes_room_for_what_the_error_says(
    world: World, filters: tuple[str, ...], left_out: str
) -> None:
    task_id = world.failed(LONG_WINDED, tenant=TENANT)
    told = world.cli("tasks", "list", *filters)
    head, row = told.stdout.splitlines()
    assert max(len(head), len(row)) <= 80
    assert row.startswith(task_id)
    assert "Permanent: the disk" in row
    assert left_out not in head.split()
    assert left_out in told.stderr
    wide = [world.cli("tasks", "list", *given, columns=250).stdout for given in (filters, ())]
    assert wide[0].splitlines()[0].split() == wide[1].splitlines()[0].split()


def test_what_the_error_says_has_room_before_the_tenant_and_the_stage(world: World) -> None:
    world.failed(LONG_WINDED, tenant=TENANT)
    told = world.cli("tasks", "list", columns=90)
    assert "Permanent: the disk" in told.stdout
    assert "no room for TENANT, STAGE" in told.stderr


def test_several_statuses_are_told_apart(world: World) -> None:
    world.failed(tenant="t-1")
    world.upgrade(tenant="t-2")
    told = world.cli("tasks", "list", "--status", "failed", "--status", "pending").stdout
    assert "STATUS" in told.splitlines()[0].split()


def test_who_commands_a_suspended_task_is_told_the_commands_for_it(world: World) -> None:
    failed, waiting = world.failed(tenant="t-1"), world.send()
    told = world.cli("tasks", "resume", failed)
    assert told.exit_code == Exit.REFUSED
    for verb in ("resume", "discard"):
        assert f"`holdfast suspended {verb} {failed}`" in told.stderr
        assert world.cli("suspended", verb, "--help").exit_code == Exit.OK
    assert told.stderr.endswith("[illegal-transition]\n")
    assert "suspended" not in world.cli("tasks", "resume", waiting).stderr


def test_the_list_is_narrowed_by_filters(world: World) -> None:
    failed = world.failed(tenant="t-1")
    other = world.upgrade(tenant="t-2", queue="slow")
    mail = world.send()

    def found(*filters: str) -> set[str]:
        return {task["taskId"] for task in world.json("tasks", "list", *filters)["tasks"]}

    assert found() == {failed, other, mail}
    assert found("--status", "failed") == {failed}
    assert found("--status", "failed", "--status", "PENDING") == {failed, other, mail}
    assert found("--type", "mail.send") == {mail}
    assert found("--tenant", "t-2") == {other}
    assert found("--queue", "slow") == {other}
    assert found("--tenant", "t-2", "--type", "mail.send") == set()


def test_the_list_is_narrowed_by_when_a_task_last_changed(world: World) -> None:
    task_id = world.send()

    def found(*filters: str) -> list[str]:
        return [task["taskId"] for task in world.json("tasks", "list", *filters)["tasks"]]

    assert found("--newer-than", "1h") == [task_id]
    assert found("--older-than", "0s") == [task_id]
    assert found("--older-than", "1h") == []
    assert found("--newer-than", "0s") == []
    assert found("--older-than", "0s", "--newer-than", "1h") == [task_id]
    assert world.cli("tasks", "list", "--newer-than", "soon").exit_code == Exit.INVALID


def test_the_list_names_the_columns_that_it_left_out(world: World) -> None:
    world.failed(tenant="t-1")
    assert "QUEUE" in world.cli("tasks", "list").stderr
    wide = world.cli("tasks", "list", columns=250)
    assert "the disk is full" in wide.stdout
    assert wide.stderr == ""


def test_a_filter_that_cannot_be_a_name_is_invalid_input(world: World) -> None:
    world.send()
    result = world.cli("tasks", "list", "--queue", "no such queue!")
    assert result.exit_code == Exit.INVALID


def test_a_long_list_goes_on_at_its_cursor(world: World) -> None:
    ids = [world.send() for _ in range(3)]
    first = world.json("tasks", "list", "--limit", "2")
    second = world.json("tasks", "list", "--limit", "2", "--cursor", first["cursor"])
    assert second["cursor"] is None
    assert [t["taskId"] for t in first["tasks"] + second["tasks"]] == sorted(ids, reverse=True)


def test_the_keys_of_a_listed_task_are_those_in_the_help(world: World) -> None:
    world.failed()
    [task] = world.json("tasks", "list")["tasks"]
    assert list(task) == list(TaskView.__annotations__)


def test_show_tells_stages_error_and_events(world: World) -> None:
    task_id = world.failed(tenant="t-1")
    told = world.cli("tasks", "show", task_id).stdout
    assert "✓ snapshot" in told
    assert "✗ migrate" in told
    assert "Traceback" in told
    assert "commands  retry, rollback, discard" in told
    assert "after stage snapshot" in told
    assert '{"taken":true}' in told
    events = told.split("\nevents\n")[1].splitlines()
    assert [line.split()[2] for line in events if line[2] != " "] == [  # a long one goes on below
        "TaskCreated",
        "TaskStarted",
        "StageStarted",
        "StageCompleted",
        "StageStarted",
        "StageFailed",
        "TaskFailed",
    ]


def test_show_escapes_what_was_stored(world: World) -> None:
    told = world.cli("tasks", "show", world.failed()).stdout
    assert "\x1b" not in told
    assert "\\x1b[31mthe disk is full" in told


def test_no_message_makes_a_line_of_its_own(world: World) -> None:
    task_id = world.failed(FORGED)
    shown = world.cli("tasks", "show", task_id).stdout.splitlines()
    [status] = [line for line in shown if line.startswith("status")]
    assert Status.FAILED in status
    assert "    status  COMPLETED, all is well" in shown  # in the traceback, indented
    assert len(world.cli("why", task_id, columns=1000).stdout.splitlines()) == 1


def test_show_as_json_has_it_all(world: World) -> None:
    shown = world.json("tasks", "show", world.failed(tenant="t-1"))
    assert shown["status"] == Status.FAILED
    assert shown["legalCommands"] == ["retry", "rollback", "discard"]
    assert shown["completed"] == ["snapshot"]
    assert shown["stages"][0]["result"] == "a snapshot"
    assert shown["checkpoint"]["customData"] == {"taken": True}
    assert shown["payload"] == "broken"
    assert shown["error"]["message"] == "\x1b[31mthe disk is full"
    assert shown["events"][0]["event"] == "TaskCreated"


def test_show_marks_what_a_rollback_has_undone(world: World) -> None:
    task_id = world.failed(tenant="t-1")
    assert world.cli("tasks", "rollback", task_id).exit_code == Exit.OK
    world.work_until_rested(task_id)
    told = world.cli("tasks", "show", task_id).stdout
    assert "↶ snapshot  undone" in told
    assert "↶ migrate   nothing to undo" in told


def test_pause_resume_and_cancel_act_and_are_audited(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    assert world.cli("tasks", "pause", task_id, "--reason", "wait").stdout == (
        f"{task_id}  {Status.PAUSED}\n"
    )
    assert world.cli("tasks", "resume", task_id).exit_code == Exit.OK
    assert world.json("tasks", "cancel", task_id)["done"][0]["status"] == Status.CANCELLED
    entries = world.json("audit")["entries"]
    assert [entry["command"] for entry in entries] == ["cancel", "resume", "pause"]
    assert entries[2]["actor"].startswith("cli:")
    assert entries[2]["origin"]
    assert entries[2]["reason"] == "wait"


def test_a_command_that_the_state_forbids_is_refused_and_audited(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    result = world.cli("tasks", "retry", task_id)
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.startswith(f"error: {task_id}: retry is not legal in {Status.PENDING}")
    [entry] = world.json("audit")["entries"]
    assert entry["refused"] == "illegal-transition"


def test_one_refusal_does_not_stop_the_others(world: World) -> None:
    ids = [world.upgrade(), world.upgrade()]
    result = world.cli("tasks", "pause", ids[0], "nobody", ids[1])
    assert result.exit_code == Exit.NOT_FOUND
    assert "2 done, 1 refused" in result.stdout
    assert "[task-not-found]" in result.stderr


@pytest.mark.parametrize(
    ("options", "first_stage"), [([], "migrate"), (["--from-scratch"], "snapshot")]
)
def test_a_retry_goes_on_at_the_checkpoint_or_from_scratch(
    world: World, options: list[str], first_stage: str
) -> None:
    task_id = world.failed(tenant="t-1")
    assert world.cli("tasks", "retry", task_id, *options).exit_code == Exit.OK
    assert world.json("tasks", "show", task_id)["stage"] == first_stage


def test_who_retries_a_task_that_starts_over_is_told(world: World) -> None:
    ids = [world.failed(tenant="t-1"), world.failed(tenant="t-2")]
    world.outlive_checkpoints()
    told = world.cli("tasks", "retry", ids[0], columns=500)
    assert told.stderr.startswith(f"warning: {ids[0]} starts over from its first stage")
    assert told.stdout == f"{ids[0]}  {Status.PENDING}\n"
    told = world.cli("tasks", "retry", ids[1], "--from-scratch")
    assert told.stderr == "", "that is what was asked for"


def test_who_resumes_a_paused_task_that_starts_over_is_told(world: World) -> None:
    task_id = world.failed(tenant="t-1")
    world.outlive_checkpoints()
    for command in ("retry", "pause"):
        assert world.cli("tasks", command, task_id).exit_code == Exit.OK
    told = world.cli("tasks", "resume", task_id, columns=500)
    assert told.stderr.startswith(f"warning: {task_id} starts over from its first stage")


def test_newer_work_of_the_tenant_needs_force(world: World) -> None:
    task_id = world.failed(tenant="t-1")

    async def open_the_line(made: App) -> None:
        await made.app.control.discard(task_id)

    world.do(open_the_line)
    newer = world.upgrade(tenant="t-1")
    world.work_until_rested(newer)
    assert world.cli("tasks", "rollback", task_id).exit_code == Exit.REFUSED
    assert world.cli("tasks", "rollback", task_id, "--force").exit_code == Exit.OK
