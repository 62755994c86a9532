"""Triggers on the command line: added, looked at, asked."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Context
from holdfast.cli.exit_codes import Exit
from holdfast.domain.task.state import Status
from holdfast.domain.trigger.trigger import TriggerStatus
from holdfast.ports import Kept, Topic
from tests.support.cli.world import App, World

CRON = ("--cron", "0 3 * * *", "--tz", "Asia/Shanghai")


@pytest.fixture
def add(world: World, app_name: str) -> Any:
    def adding(name: str = "nightly", *more: str, code: int = Exit.OK) -> Any:
        given = more or CRON
        args = ["triggers", "add", app_name, name, "--type", "mail.send", "--payload", '"ann"']
        result = world.cli(*args, *given)
        assert result.exit_code == code, result.output
        return result

    return adding


def declare(world: World) -> None:
    """As a worker does at its start."""

    async def work(made: App) -> None:
        made.send.cron("0 4 * * *", payload="bob", tz="Asia/Shanghai", name="declared")
        async with made.app.running():
            while not [found async for found in made.app.schedule.find()]:
                ticket = made.app.store.ticket(Topic.DUE)
                await made.app.store.wait(Topic.DUE, ticket, timeout=0.05)

    world.do(work)


def fits(text: str) -> bool:
    return max(map(len, text.splitlines())) <= 80


def test_a_cron_is_added_and_shown_in_its_zone(world: World, add: Any) -> None:
    told = add().stdout
    assert told.startswith(f"nightly  {TriggerStatus.PENDING}  fires at 20")
    assert told.endswith("03:00:00+08:00\n")
    shown = world.cli("triggers", "show", "nightly").stdout
    assert fits(shown)
    assert "schedule   0 3 * * * (Asia/Shanghai)" in shown
    assert "made by    a call" in shown
    assert "commands   fire, pause, cancel" in shown
    assert shown.count("03:00:00+08:00") >= 3
    assert '  "ann"' in shown


def test_show_as_json_has_it_all(world: World, add: Any) -> None:
    more = ("--jitter", "30s", "--overlap", "skip", "--misfire", "catch-up", "--tenant", "t-1")
    add("nightly", *CRON, *more, "--queue", "mail")
    shown = world.json("triggers", "show", "nightly")
    assert (shown["kind"], shown["type"], shown["tenantId"]) == ("cron", "mail.send", "t-1")
    assert (shown["misfire"], shown["overlap"]) == ("catch-up", "skip")
    assert (shown["jitterSeconds"], shown["queue"]) == (30.0, "mail")
    assert shown["payload"] == "ann"
    assert shown["declared"] is False
    assert shown["nextFireTime"].endswith("T03:00:00+08:00")
    assert shown["next"][0] == shown["nextFireTime"]
    assert shown["legalCommands"] == ["fire", "pause", "cancel"]


def test_secrets_in_a_payload_are_not_shown(world: World) -> None:
    async def work(made: App) -> None:
        @made.app.task("login")
        async def login(ctx: Context, given: dict[str, Any]) -> None: ...

        given = {"user": "ann", "hosts": [{"db_password": "hunter2"}], "apiKey": "hunter2"}
        async with made.app:
            await made.app.schedule.every("1h", login, given, name="login")

    world.do(work)
    shown = world.json("triggers", "show", "login")
    hidden = {"user": "ann", "hosts": [{"db_password": "***"}], "apiKey": "***"}
    assert shown["payload"] == hidden
    told = world.cli("triggers", "show", "login").stdout
    assert "ann" in told
    assert "hunter2" not in told


def test_next_tells_the_fire_times_in_order(world: World, add: Any) -> None:
    add()
    times = world.json("triggers", "next", "nightly", "-n", "3")["next"]
    assert len(times) == 3
    assert times == sorted(times)
    lines = world.cli("triggers", "next", "nightly", "-n", "2").stdout.splitlines()
    assert [line.replace(" ", "T") for line in lines] == times[:2]
    assert world.cli("triggers", "next", "nightly", "-n", "0").exit_code == Exit.USAGE


def test_an_interval_and_a_moment_are_added(world: World, add: Any) -> None:
    add("often", "--every", "15m")
    add("once", "--at", "2999-01-31T03:00:00+08:00")
    assert world.json("triggers", "show", "often")["schedule"] == "every 15m"
    once = world.json("triggers", "show", "once")
    assert datetime.fromisoformat(once["nextFireTime"]) == datetime(2999, 1, 30, 19, tzinfo=UTC)
    assert len(world.json("triggers", "next", "once")["next"]) == 1


def test_list_finds_by_status_and_tenant_and_tells_who_made_it(world: World, add: Any) -> None:
    declare(world)
    add("often", "--every", "15m", "--tenant", "t-1")
    world.cli("triggers", "pause", "often")
    listed = {one["triggerId"]: one for one in world.json("triggers", "list")["triggers"]}
    assert {name: one["declared"] for name, one in listed.items()} == {
        "declared": True,
        "often": False,
    }
    [paused] = world.json("triggers", "list", "--status", "paused")["triggers"]
    assert paused["triggerId"] == "often"
    [of_tenant] = world.json("triggers", "list", "--tenant", "t-1")["triggers"]
    assert of_tenant["triggerId"] == "often"
    told = world.cli("triggers", "list").stdout
    assert fits(told)
    _, declared, often = (line.split() for line in told.splitlines())
    assert (declared[0], declared[4]) == ("declared", "code")
    assert (often[0], often[4]) == ("often", "call")
    assert "no matching triggers" in world.cli("triggers", "list", "--tenant", "t-9").stderr
    assert "declaration in code" in world.cli("triggers", "show", "declared").stdout


def test_a_long_list_goes_on_at_its_cursor(world: World, add: Any) -> None:
    for name in ("a", "b", "c"):
        add(name)
    first = world.json("triggers", "list", "--limit", "2")
    rest = world.json("triggers", "list", "--cursor", first["cursor"])
    found = [one["triggerId"] for page in (first, rest) for one in page["triggers"]]
    assert found == ["a", "b", "c"]


def test_fire_makes_a_task_now_and_its_times_stay(world: World, add: Any, app_name: str) -> None:
    add()
    before = world.json("triggers", "show", "nightly")["nextFireTime"]
    fired = world.json("triggers", "fire", "nightly", "--app", app_name, "--reason", "now")
    task = world.json("tasks", "show", fired["taskId"])
    assert (task["type"], task["status"], task["payload"]) == ("mail.send", Status.PENDING, "ann")
    after = world.json("triggers", "show", "nightly")
    assert (after["nextFireTime"], after["fired"]) == (before, 1)
    assert after["lastTaskId"] == fired["taskId"]
    told = world.cli("triggers", "fire", "nightly", "--app", app_name).stdout
    assert told.startswith(f"nightly  {TriggerStatus.PENDING}  task ")
    assert world.cli("triggers", "fire", "nightly").exit_code == Exit.USAGE


def test_pause_resume_and_cancel_act_and_are_audited(world: World, add: Any) -> None:
    add()
    assert world.cli("triggers", "pause", "nightly", "--reason", "holiday").stdout == (
        f"nightly  {TriggerStatus.PAUSED}\n"
    )
    paused = world.cli("triggers", "next", "nightly")
    assert len(paused.stdout.splitlines()) == 5
    assert "resumed now" in paused.stderr
    assert "reason     holiday" in world.cli("triggers", "show", "nightly").stdout
    assert world.json("triggers", "resume", "nightly")["status"] == TriggerStatus.PENDING
    assert world.json("triggers", "cancel", "nightly")["status"] == TriggerStatus.CANCELLED
    assert "fires no more" in world.cli("triggers", "next", "nightly").stderr
    assert "never again" in world.cli("triggers", "show", "nightly").stdout
    entries = world.json("audit", "--task", "trigger:nightly")["entries"]
    assert [entry["command"] for entry in entries] == ["cancel", "resume", "pause"]
    assert entries[2]["actor"].startswith("cli:")
    assert (entries[2]["origin"] != "", entries[2]["reason"]) == (True, "holiday")
    told = world.cli("audit").stdout
    assert any(line.split()[::2][:2] == ["trigger:nightly", "pause"] for line in told.splitlines())


def test_what_the_state_forbids_is_refused_and_audited(world: World, add: Any) -> None:
    add()
    result = world.cli("triggers", "resume", "nightly")
    assert result.exit_code == Exit.REFUSED
    [entry] = world.json("audit")["entries"]
    assert (entry["taskId"], entry["refused"]) == ("trigger:nightly", "illegal-transition")


@pytest.mark.parametrize("command", ["show", "next", "pause", "resume", "cancel"])
def test_a_trigger_that_is_not_there_is_not_found(world: World, command: str) -> None:
    world.send()
    result = world.cli("triggers", command, "nobody")
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stderr == "error: there is no trigger nobody [trigger-not-found]\n"


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ((), Exit.USAGE, "give one of --at, --every and --cron"),
        (("--every", "5m", "--at", "2999-01-01"), Exit.USAGE, "give one of"),
        (("--every", "5m", "--tz", "UTC"), Exit.USAGE, "--tz needs --cron"),
        (("--at", "soon"), Exit.INVALID, "write a time such as 2026-"),
        (("--at", "2999-01-01T00:00:00"), Exit.INVALID, "say which zone"),
        (("--at", "2001-01-01T00:00:00Z", "--misfire", "skip"), Exit.INVALID, "it is in the past"),
        (("--every", "-5s"), Exit.INVALID, "an interval is a duration"),
        (("--cron", "0 0 30 2 *"), Exit.INVALID, "it never fires"),
        (("--cron", "0 3 * * *", "--tz", "Mars/Olympus"), Exit.INVALID, "no such time zone"),
        (("--every", "5m", "--type", "nope"), Exit.INVALID, "it declares: mail.send"),
        (("--every", "5m", "--payload", "{"), Exit.INVALID, "--payload: not JSON"),
        (("--every", "5m", "--payload", "7"), Exit.INVALID, "should be a valid string"),
    ],
)
def test_bad_input_is_refused_with_the_reason(
    world: World, app_name: str, given: tuple[str, ...], code: Exit, told: str
) -> None:
    args = ["triggers", "add", app_name, "x", "--type", "mail.send", "--payload", '"ann"', *given]
    result = world.cli(*args)
    assert result.exit_code == code
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_another_definition_of_the_same_name_needs_a_word(world: World, add: Any) -> None:
    add("often", "--every", "15m")
    assert add("often", "--every", "20m", code=Exit.REFUSED).stderr.endswith("[trigger-conflict]\n")
    add("often", "--every", "20m", "--replace")
    assert world.json("triggers", "show", "often")["schedule"] == "every 20m"


def test_prune_knows_triggers_and_plans(world: World, add: Any) -> None:
    add()
    world.cli("triggers", "cancel", "nightly")
    kinds = ("--kind", "triggers", "--kind", "plans", "--older-than", "0s")
    assert world.json("prune", *kinds)["pruned"] == {Kept.TRIGGERS: 0, Kept.PLANS: 0}
    assert world.json("triggers", "show", "nightly")["status"] == TriggerStatus.CANCELLED
