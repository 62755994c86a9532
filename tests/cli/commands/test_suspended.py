"""`holdfast suspended`: lists, shows and commands."""

import json

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.domain.task.state import Status
from holdfast.engine.operations import expired_checkpoints
from tests.support.cli.world import BROKEN, FINE, LONG_WINDED, STUCK, World


def test_only_suspended_tasks_are_listed(world: World) -> None:
    failed = world.failed(tenant="t-1")
    world.upgrade(tenant="t-2")
    assert [task["taskId"] for task in world.json("suspended", "list")["tasks"]] == [failed]
    assert failed in world.cli("suspended", "list").stdout


def test_what_the_error_says_is_shown_in_80_columns_as_far_as_there_is_room(world: World) -> None:
    task_id = world.failed(LONG_WINDED, tenant="t-1")
    told = world.cli("suspended", "list")
    head, row = told.stdout.splitlines()
    assert max(len(head), len(row)) <= 80
    assert row.startswith(task_id)
    assert "ERROR" in head
    assert "Permanent: the disk" in row
    assert "…" in row
    assert "no room for " in told.stderr
    assert "FINGERPRINT" in told.stderr.split(":")[0]
    wide = world.cli("suspended", "list", columns=250)
    assert "and nobody has emptied it" in wide.stdout
    assert wide.stderr == ""


def test_what_the_error_says_shrinks_and_ids_do_not(world: World) -> None:
    task_id = world.failed(STUCK, tenant="t-1")
    world.cli("tasks", "rollback", task_id)
    world.work_until_rested(task_id)
    head, row = world.cli("suspended", "list").stdout.splitlines()
    assert max(len(head), len(row)) <= 80
    assert row.split()[:2] == [task_id, Status.ROLLBACK_FAILED]
    assert "Permanent: th" in row
    assert "…" in row


def test_they_are_counted_by_cause(world: World) -> None:
    world.failed_mails(3)
    world.failed()
    most, least = world.json("suspended", "list", "--group")["groups"]
    assert (most["count"], most["types"]) == (3, ["mail.send"])
    assert (least["count"], least["stage"]) == (1, "migrate")
    table = world.cli("suspended", "list", "--group").stdout
    assert most["fingerprint"] in table
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize("shown", [(), ("--group",)])
def test_a_filter_that_matches_nothing_does_not_say_that_nothing_waits(
    world: World, shown: tuple[str, ...]
) -> None:
    world.upgrade(tenant="t-2")
    assert "nothing waits for a person" in world.cli("suspended", "list", *shown).stderr
    world.failed(tenant="t-1")
    narrowed = world.cli("suspended", "list", "--tenant", "t-2", *shown).stderr
    assert narrowed == "no suspended task matches\n"


def test_filters_narrow_the_list(world: World) -> None:
    mails = world.failed_mails(2)
    upgrade = world.failed(tenant="t-1")
    [group] = [g for g in world.json("suspended", "list", "--group")["groups"] if g["count"] == 2]

    def found(*filters: str) -> set[str]:
        return {task["taskId"] for task in world.json("suspended", "list", *filters)["tasks"]}

    assert found("--error", group["fingerprint"]) == set(mails)
    assert found("--type", "tenant.upgrade") == {upgrade}
    assert found("--tenant", "t-1") == {upgrade}
    assert found("--older-than", "2h") == set()
    assert found("--older-than", "0s") == {*mails, upgrade}


def test_a_look_at_a_task_that_is_not_suspended_is_a_conflict(world: World) -> None:
    assert world.cli("suspended", "show", world.send()).exit_code == Exit.REFUSED
    assert world.cli("suspended", "show", "nobody").exit_code == Exit.NOT_FOUND
    assert "Traceback" in world.cli("suspended", "show", world.failed()).stdout


def test_a_resume_counts_failures_anew(world: World) -> None:
    task_id = world.failed(tenant="t-1")
    assert world.cli("suspended", "resume", task_id).exit_code == Exit.OK
    shown = world.json("tasks", "show", task_id)
    assert (shown["status"], shown["attempt"], shown["run"]) == (Status.PENDING, 1, 2)


def test_a_resume_of_what_is_not_suspended_is_a_conflict_and_audited(world: World) -> None:
    waiting = world.send()
    result = world.cli("suspended", "resume", waiting)
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.endswith("[not-suspended]\n")
    assert world.json("audit")["entries"][0]["refused"] == "not-suspended"
    assert world.cli("suspended", "resume", "nobody").exit_code == Exit.NOT_FOUND
    assert world.cli("suspended", "discard", waiting).exit_code == Exit.REFUSED
    assert world.cli("suspended", "discard", "nobody").exit_code == Exit.NOT_FOUND


def test_a_discarded_task_is_cancelled_with_the_reason(world: World) -> None:
    task_id = world.failed()
    assert world.cli("suspended", "discard", task_id, "--reason", "old").exit_code == Exit.OK
    shown = world.json("tasks", "show", task_id)
    assert (shown["status"], shown["reason"]) == (Status.CANCELLED, "old")


def test_many_are_resumed_after_a_question_that_says_how_many(world: World) -> None:
    world.failed_mails(3)
    kept = world.failed()
    filters = ("--all-matching", "--type", "mail.send")
    refused = world.cli("suspended", "resume", *filters, answer="n\n")
    assert refused.exit_code == Exit.FAILED
    assert "resume 3 tasks?" in refused.stderr
    assert len(world.json("suspended", "list")["tasks"]) == 4
    agreed = world.cli("suspended", "resume", *filters, answer="y\n")
    assert agreed.exit_code == Exit.OK
    assert "3 done, 0 refused" in agreed.stdout
    assert [task["taskId"] for task in world.json("suspended", "list")["tasks"]] == [kept]


def test_with_yes_nothing_is_asked(world: World) -> None:
    ids = world.failed_mails(2)
    report = world.json("suspended", "discard", "--all-matching", "--yes")
    assert {one["taskId"] for one in report["done"]} == set(ids)
    assert report["refused"] == []


def test_who_resumes_a_task_that_starts_over_is_told(world: World) -> None:
    old = world.failed(tenant="t-1")
    world.outlive_checkpoints()
    young, mail = world.failed(tenant="t-2"), world.failed_mails(1)[0]
    told = world.cli("suspended", "resume", old, young, mail, columns=500)
    assert told.exit_code == Exit.OK
    assert told.stderr.startswith(f"warning: {old} starts over from its first stage")
    assert "checkpoint_max_age (7d)" in told.stderr
    assert young not in told.stderr
    world.work_until_rested(old, young)
    events = {i: world.json("tasks", "show", i)["events"] for i in (old, young)}
    discarded = {i for i, of in events.items() if "CheckpointDiscarded" in str(of)}
    assert discarded == {old}, "what was said came true"


def test_what_starts_over_is_told_before_many_are_resumed(world: World) -> None:
    old = world.failed(tenant="t-1")
    world.outlive_checkpoints()
    world.failed(tenant="t-2")
    asked = world.cli("suspended", "resume", "--all-matching", answer="n\n", columns=500)
    assert f"warning: {old} starts over from its first stage" in asked.stderr.splitlines()[0]
    assert "resume 2 tasks?" in asked.stderr
    discarded = world.cli("suspended", "discard", "--all-matching", "--yes")
    assert "warning" not in discarded.stderr


def test_a_refused_resume_starts_nothing_over(world: World) -> None:
    task_id = world.failed(tenant="t-1")
    world.outlive_checkpoints()
    world.cli("suspended", "resume", task_id)
    refused = world.cli("suspended", "resume", task_id)
    assert refused.exit_code == Exit.REFUSED
    assert "warning" not in refused.stderr


def test_a_look_at_a_suspended_task_says_that_it_would_start_over(world: World) -> None:
    task_id = world.failed(tenant="t-1")
    assert "checkpoint_max_age" not in world.cli("suspended", "show", task_id).stdout
    world.outlive_checkpoints()
    assert "older than checkpoint_max_age (7d)" in (
        world.cli("suspended", "show", task_id, columns=500).stdout
    )


def test_ids_and_filters_do_not_mix(world: World) -> None:
    task_id = world.failed()
    for args in ([], [task_id, "--all-matching"], [task_id, "--type", "mail.send"]):
        result = world.cli("suspended", "resume", *args)
        assert result.exit_code == Exit.USAGE
        assert result.stderr.endswith("[usage]\n")


def test_a_rollback_that_failed_goes_on_backward(world: World) -> None:
    task_id = world.failed(STUCK, tenant="t-1")
    world.cli("tasks", "rollback", task_id)
    world.work_until_rested(task_id)
    [task] = world.json("suspended", "list")["tasks"]
    assert task["status"] == Status.ROLLBACK_FAILED
    assert world.cli("suspended", "resume", task_id).exit_code == Exit.OK
    assert world.json("tasks", "show", task_id)["status"] == Status.ROLLING_BACK


def test_one_is_amended_and_goes_on(world: World) -> None:
    task_id = world.failed(tenant="t-1")
    for wrong in (["--payload", "{"], ["--data", "[]"], []):
        refused = world.cli("suspended", "amend", task_id, *wrong)
        assert refused.exit_code == Exit.INVALID
    told = world.cli(
        "suspended", "amend", task_id, "--payload", f'"{FINE}"', "--data", '{"taken": 2}',
        "--reason", "a slip",
    )  # fmt: skip
    assert told.exit_code == Exit.OK
    world.work_until_rested(task_id)
    shown = world.json("tasks", "show", task_id)
    assert (shown["status"], shown["payload"]) == (Status.COMPLETED, FINE)
    assert shown["data"] == {"taken": 2}
    assert world.cli("suspended", "amend", task_id, "--payload", "1").exit_code == Exit.REFUSED


def test_it_is_said_when_not_all_that_may_start_over_were_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.plan("p-1", {f"t-{n}": BROKEN for n in range(3)})
    world.work_until_plan_rests("p-1")
    world.outlive_checkpoints()
    everything = ("bulk", "preview", "retry", "--type", "tenant.upgrade")
    told = " ".join(world.cli(*everything).output.split())
    assert "3 tasks would start over" in told
    assert "were checked" not in told
    monkeypatch.setattr(expired_checkpoints, "CHECKED_MAX", 2)
    told = " ".join(world.cli(*everything).output.split())
    assert "2 tasks would start over" in told
    assert "only the first 2 of 3 tasks were checked" in told
    retried = " ".join(world.cli("plans", "retry", "p-1").output.split())
    assert "2 tasks would start over" in retried
    assert "only the first 2 of 3 tasks were checked" in retried


UNKNOWN_CODE = "this command does not know the code of tenant.upgrade"


def test_it_is_said_that_the_code_which_judges_a_checkpoint_is_not_known_here(world: World) -> None:
    """The service says whether such a task starts over; silence would read as: it goes on."""
    ids = [world.failed(tenant=f"t-{n}") for n in range(4)]
    [mail] = world.failed_mails(1)
    assert UNKNOWN_CODE in world.cli("suspended", "resume", ids[0], mail, columns=500).stderr
    assert UNKNOWN_CODE in world.cli("tasks", "retry", ids[1], columns=500).stderr
    asked = world.cli("suspended", "resume", "--all-matching", answer="n\n", columns=500)
    assert UNKNOWN_CODE in asked.stderr.splitlines()[0]
    preview = ("bulk", "preview", "retry", "--type", "tenant.upgrade")
    assert UNKNOWN_CODE in world.cli(*preview, columns=500).stderr
    told = world.cli("suspended", "resume", ids[2], "--json")
    assert (json.loads(told.stdout)["codeUnknown"], told.stderr) == (["tenant.upgrade"], "")
    told = world.cli("tasks", "retry", ids[3], "--json", "--from-scratch")
    assert json.loads(told.stdout)["codeUnknown"] == [], "it starts over as it was asked to"


def test_no_code_judges_a_task_that_has_completed_no_stage(world: World) -> None:
    [mail] = world.failed_mails(1)
    assert world.cli("suspended", "resume", mail).stderr == ""


def test_a_retry_of_a_plan_says_that_the_code_is_not_known_here(world: World) -> None:
    world.plan("p-1", {"t-1": BROKEN})
    world.work_until_plan_rests("p-1")
    assert UNKNOWN_CODE in world.cli("plans", "retry", "p-1", columns=500).stderr
    world.work_until_plan_rests("p-1")
    told = world.cli("plans", "retry", "p-1", "--json")
    assert json.loads(told.stdout)["codeUnknown"] == ["tenant.upgrade"]
    assert UNKNOWN_CODE not in told.stderr
