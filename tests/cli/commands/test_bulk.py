"""Bulk actions on the command line."""

import asyncio
import json

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.domain.task.state import Status
from tests.support.cli.world import BROKEN, App, World


def fits(text: str) -> bool:
    return max(map(len, text.splitlines()), default=0) <= 80


def work_until_over(world: World, bulk_id: str) -> None:
    async def whole() -> None:
        made = App(world.url)
        async with made.app.running():
            await (await made.app.bulk.get(bulk_id)).wait("60s")

    asyncio.run(whole())


def test_a_preview_says_what_it_would_touch(world: World) -> None:
    ids = world.failed_mails(12)
    told = world.cli("bulk", "preview", "discard", "--type", "mail.send")
    assert told.exit_code == Exit.OK, told.output
    assert told.stdout.startswith("discard would act on 12 tasks\n")
    assert fits(told.stdout)
    assert "a dry run: nothing was written" in told.stderr
    shape = world.json("bulk", "start", "discard", "--type", "mail.send", "--dry-run")
    assert (shape["matching"], shape["more"], shape["refusedNow"]) == (12, False, 0)
    assert {one["taskId"] for one in shape["sample"]} < set(ids)
    assert world.json("bulk", "list") == {"bulks": [], "cursor": None}


def test_which_tasks_would_start_over_is_told_beforehand(world: World) -> None:
    old = world.failed(tenant="t-1")
    world.outlive_checkpoints()
    world.failed(tenant="t-2")
    filtered = ("--type", "tenant.upgrade")
    words = f"1 task would start over, with new effect keys: {old}"
    assert words in world.cli("bulk", "preview", "retry", *filtered, columns=500).stderr
    begun = world.cli("bulk", "start", "retry", *filtered, columns=500)
    assert begun.stderr.startswith(f"warning: {words}")
    told = world.json("bulk", "preview", "retry", *filtered)
    assert (told["startsOver"], told["startingOver"]) == (1, [old])
    assert "start over" not in world.cli("bulk", "preview", "discard", *filtered).output


def test_it_is_started_carried_out_by_a_worker_and_shown(world: World) -> None:
    ids = world.failed_mails(3)
    other = world.failed(BROKEN)
    begun = world.json(
        *("bulk", "start", "discard", "--type", "mail.send"),
        *("--rate", "1000", "--reason", "not needed"),
    )
    assert (begun["phase"], begun["command"], begun["rate"]) == ("waiting", "discard", 1000.0)
    assert begun["filter"]["type"] == "mail.send"
    work_until_over(world, begun["bulkId"])
    told = world.json("bulk", "show", begun["bulkId"])
    assert (told["phase"], told["done"], told["left"], told["matching"]) == ("done", 3, 0, 3)
    assert told["why"] == "not needed"
    assert told["startedBy"].startswith("cli:")
    for task_id in ids:
        assert world.json("tasks", "show", task_id)["status"] == Status.CANCELLED
    assert world.json("tasks", "show", other)["status"] == Status.FAILED
    shown = world.cli("bulk", "show", begun["bulkId"]).stdout
    assert fits(shown)
    assert "counts    3 done, 0 left" in shown
    timeline = world.cli("tasks", "show", begun["bulkId"]).stdout
    assert "TaskSnoozed  act, run 1, 0s" in timeline
    listed = world.cli("bulk", "list").stdout
    assert fits(listed)
    assert begun["bulkId"] in listed


def test_without_a_live_worker_it_says_that_nobody_runs_it_yet(world: World) -> None:
    world.failed_mails(1)
    begun = world.cli("bulk", "start", "resume", "--type", "mail.send")
    assert begun.exit_code == Exit.OK, begun.output
    assert "nothing runs yet" in begun.stderr
    bulk_id = begun.stdout.split()[0]
    assert "nothing runs yet" in world.cli("bulk", "show", bulk_id).stderr
    assert "watch it with: holdfast bulk watch" in begun.stderr


def test_it_can_be_stopped_before_anybody_runs_it(world: World) -> None:
    [mail] = world.failed_mails(1)
    begun = world.json("bulk", "start", "resume", "--type", "mail.send")
    stopped = world.json("bulk", "stop", begun["bulkId"], "--reason", "a mistake")
    assert (stopped["phase"], stopped["reason"]) == ("stopped", "a mistake")
    entries = world.json("audit", "--task", f"bulk:{begun['bulkId']}")["entries"]
    assert [entry["command"] for entry in entries] == ["stop", "start resume"]
    assert world.json("tasks", "show", mail)["status"] == Status.FAILED
    again = world.cli("bulk", "stop", begun["bulkId"])
    assert again.exit_code == Exit.REFUSED


def test_it_can_be_paused_and_resumed(world: World) -> None:
    world.failed_mails(1)
    begun = world.json("bulk", "start", "discard", "--type", "mail.send")
    assert world.json("bulk", "pause", begun["bulkId"])["phase"] == "paused"
    assert world.json("bulk", "resume", begun["bulkId"])["phase"] == "waiting"


def test_a_canary_that_halts_makes_watch_end_with_an_error(world: World) -> None:
    world.failed_mails(3)
    begun = world.json(
        *("bulk", "start", "resume", "--type", "mail.send", "--canary", "--stop-at", "0"),
    )
    assert begun["canary"]["steps"] == [1, 10]
    work_until_over(world, begun["bulkId"])
    watched = world.cli("bulk", "watch", begun["bulkId"])
    assert watched.exit_code == Exit.FAILED
    assert "resume halted  1 done, 2 left, 1 failed again" in watched.stdout
    assert "1 of 1 have failed again" in watched.stdout
    [line] = world.cli("bulk", "watch", begun["bulkId"], "--json").stdout.splitlines()
    assert json.loads(line)["phase"] == "halted"


def test_an_empty_filter_is_refused(world: World) -> None:
    world.failed_mails(1)
    refused = world.cli("bulk", "start", "resume")
    assert refused.exit_code == Exit.INVALID
    assert "the filter is empty" in refused.stderr
    assert world.json("bulk", "preview", "resume", "--everything")["matching"] == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--canary", "--stop-at", "many"),
        ("--steps", "one"),
        ("--rate", "0"),
        ("--status", "COMPLETED"),
        ("--type", "no good"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(world: World, options: tuple[str, ...]) -> None:
    world.failed_mails(1)
    filters = () if "--type" in options else ("--type", "mail.send")
    refused = world.cli("bulk", "start", "resume", *filters, *options)
    assert refused.exit_code == Exit.INVALID
    assert len(refused.stderr.splitlines()) == 1


def test_one_that_is_not_there_is_not_found(world: World) -> None:
    [mail] = world.failed_mails(1)
    for bulk_id in ("nobody", mail):
        found = world.cli("bulk", "show", bulk_id)
        assert found.exit_code == Exit.NOT_FOUND
        assert "bulk-not-found" in found.stderr


def test_filters_narrow_it_as_those_of_suspended_do(world: World) -> None:
    world.failed_mails(2)
    world.failed(BROKEN, tenant="t-1")
    groups = world.json("suspended", "list", "--group")["groups"]
    [mails] = [group for group in groups if group["types"] == ["mail.send"]]
    look = ("bulk", "preview", "resume")
    assert world.json(*look, "--error", mails["fingerprint"])["matching"] == 2
    assert world.json(*look, "--tenant", "t-1")["matching"] == 1
    assert world.json(*look, "--queue", "default")["matching"] == 3
    assert world.json(*look, "--older-than", "1h")["matching"] == 0
    assert world.json(*look, "--plan", "p-1")["matching"] == 0
    assert world.json(*look, "--status", "FAILED")["matching"] == 3
