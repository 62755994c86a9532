"""Plans on the command line: made, looked at, asked, watched."""

import asyncio
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from holdfast.cli.commands import plans as plan_commands
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import plan_view
from holdfast.cli.output.watch import POLL_SECONDS
from holdfast.cli.session import Session
from holdfast.domain.plan.plan import MemberState, Plan, PlanStatus
from holdfast.domain.task.state import Status
from holdfast.engine.plans.handle import PlanInfo, info
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import beat
from tests.support.cli.world import BROKEN, FINE, LONG_WINDED, App, World

TENANTS = [f"t-{number}" for number in range(10)]
AT_A_TERMINAL = """  # whoever runs the tests in the background ignores Ctrl-C
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from holdfast_command import main
sys.exit(main())
"""
ONE_BROKEN = {tenant: BROKEN if tenant == "t-2" else FINE for tenant in TENANTS}
NOBODY = "no worker is alive, so nothing runs yet; start one: holdfast worker APP\n"


def halted(world: World, order: str = BROKEN) -> None:
    orders = {tenant: order if tenant == "t-2" else FINE for tenant in TENANTS}
    world.plan("up-7", orders, waves=("2", "50%", "100%"), max_concurrency=2)
    world.work_until_plan_rests("up-7")


def fits(text: str) -> bool:
    return max(map(len, text.splitlines())) <= 80


# -- looking


def test_a_halted_plan_shows_why_and_what_may_be_asked(world: World) -> None:
    halted(world, LONG_WINDED)
    told = world.cli("plans", "show", "up-7").stdout
    assert fits(told)
    assert f"status    {PlanStatus.HALTED} for" in told
    assert "reason    1 of the 3 tasks of wave 2 have failed" in told
    assert "commands  resume, cancel, retry, rollback" in told
    assert "slots     0 taken, at most 2" in told
    assert "failed (1)" in told
    assert "t-2\n    holdfast.Permanent: the disk is full again" in told
    [now] = [line for line in told.splitlines() if line.startswith("▶")]
    assert now.split()[1:3] == ["2", "3"]


def test_a_plan_that_nobody_drives_says_so(world: World) -> None:
    world.plan("up-7", {"t-1": FINE})
    assert NOBODY in world.cli("plans", "show", "up-7").stderr
    assert world.cli("plans", "show", "up-7", "--json").stderr == ""
    assert NOBODY not in world.cli("plans", "pause", "up-7").stderr, "it waits for a person"
    assert NOBODY not in world.cli("plans", "show", "up-7").stderr
    assert NOBODY in world.cli("plans", "resume", "up-7").stderr
    world.cli("plans", "pause", "up-7")
    assert NOBODY in world.cli("plans", "rollback", "up-7").stderr
    world.do(lambda made: made.app.store.tasks.renew(beat("w-1"), [], lease_seconds=30))
    assert NOBODY not in world.cli("plans", "show", "up-7").stderr


def test_show_as_json_has_it_all(world: World) -> None:
    halted(world)
    shown = world.json("plans", "show", "up-7", "--events")
    assert shown["status"] == PlanStatus.HALTED
    assert (shown["total"], shown["wave"], shown["maxConcurrency"]) == (10, 2, 2)
    assert [wave["size"] for wave in shown["waves"]] == [2, 3, 5]
    assert sum(shown["waves"][1]["counts"].values()) == 3
    assert shown["haltOn"] == {"rule": "failure-rate", "rate": 0.0}
    [failed] = shown["failed"]
    assert (failed["tenantId"], shown["failedTotal"]) == ("t-2", 1)
    assert world.json("tasks", "show", failed["taskId"])["planId"] == "up-7"
    assert "PlanHalted" in [event["event"] for event in shown["events"]]
    assert "events" not in world.json("plans", "show", "up-7")


def test_events_are_told_in_order_and_fit(world: World) -> None:
    halted(world)
    told = world.cli("plans", "show", "up-7", "--events").stdout
    assert fits(told)
    order = [told.index(name) for name in ("PlanCreated", "PlanStarted", "WaveEnded", "PlanHalted")]
    assert order == sorted(order)
    assert "2 admitted" in told


def test_of_many_failures_the_first_are_shown_and_the_rest_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_view, "FAILED_SHOWN", 2)
    world.plan("up-7", dict.fromkeys(TENANTS, BROKEN))
    world.work_until_plan_rests("up-7")
    told = world.cli("plans", "show", "up-7").stdout
    assert told.count("holdfast.Permanent") == 2
    assert "and 8 more" in told
    assert len(world.json("plans", "show", "up-7")["failed"]) == 10


def test_what_an_error_says_cannot_steer_the_terminal(world: World) -> None:
    halted(world)
    assert "\x1b" not in world.cli("plans", "show", "up-7").stdout


def test_list_has_the_newest_first_and_finds_by_status(world: World) -> None:
    halted(world)
    world.plan("up-8", {"t-99": FINE})
    listed = world.json("plans", "list")
    assert [plan["planId"] for plan in listed["plans"]] == ["up-8", "up-7"]
    assert listed["cursor"] is None
    [found] = world.json("plans", "list", "--status", "halted")["plans"]
    assert found["planId"] == "up-7"
    told = world.cli("plans", "list").stdout
    assert fits(told)
    assert told.splitlines()[2].split()[:2] == ["up-7", PlanStatus.HALTED]
    assert "no matching plans" in world.cli("plans", "list", "--status", "FAILED").stderr


def test_a_long_list_goes_on_at_its_cursor(world: World) -> None:
    for number in range(3):
        world.plan(f"up-{number}", {f"t-{number}": FINE})
    first = world.json("plans", "list", "--limit", "2")
    rest = world.json("plans", "list", "--cursor", first["cursor"])
    found = [plan["planId"] for page in (first, rest) for plan in page["plans"]]
    assert found == ["up-2", "up-1", "up-0"]


@pytest.mark.parametrize("command", ["show", "pause", "watch", "rollback"])
def test_a_plan_that_is_not_there_is_not_found(world: World, command: str) -> None:
    world.send()
    result = world.cli("plans", command, "nobody")
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stderr == "error: there is no plan nobody [plan-not-found]\n"
    assert world.cli("plans", command, "no good name").exit_code == Exit.INVALID


def test_a_hundred_percent_is_not_said_before_it_is_reached() -> None:
    assert (plan_view.percent(0.999), plan_view.percent(1.0)) == ("99%", "100%")


# -- asking


def test_pause_resume_and_cancel_act_and_are_audited(world: World) -> None:
    world.plan("up-7", {"t-1": FINE})
    assert world.cli("plans", "pause", "up-7", "--reason", "wait").stdout == (
        f"up-7  {PlanStatus.PAUSED}\n"
    )
    assert world.json("plans", "resume", "up-7")["status"] == PlanStatus.RUNNING
    told = world.cli("plans", "cancel", "up-7").stdout
    assert "cancel requested" in told
    entries = world.json("audit", "--task", "plan:up-7")["entries"]
    assert [entry["command"] for entry in entries] == ["cancel", "resume", "pause"]
    assert entries[2]["actor"].startswith("cli:")
    assert entries[2]["origin"]
    assert entries[2]["reason"] == "wait"
    told = world.cli("audit").stdout
    assert any(line.split()[::2][:2] == ["plan:up-7", "pause"] for line in told.splitlines())


def test_what_the_state_forbids_is_refused_and_audited(world: World) -> None:
    world.plan("up-7", {"t-1": FINE})
    result = world.cli("plans", "rollback", "up-7")
    assert result.exit_code == Exit.REFUSED
    assert f"rollback is not legal in {PlanStatus.READY}" in result.stderr
    [entry] = world.json("audit")["entries"]
    assert (entry["taskId"], entry["refused"]) == ("plan:up-7", "illegal-transition")


def test_which_tasks_of_a_plan_would_start_over_is_told_before_it_is_retried(
    world: World,
) -> None:
    halted(world)
    world.outlive_checkpoints()
    told = world.cli("plans", "retry", "up-7", columns=500)
    assert told.exit_code == Exit.OK
    words = r"warning: 1 task would start over, with new effect keys: \S+\n"
    assert re.match(words, told.stderr), told.stderr


def test_a_running_plan_is_rolled_back_with_one_command(world: World) -> None:
    """One that waits for a tenant which a person holds."""
    world.plan("up-7", {"t-1": FINE, "t-2": FINE})
    world.cli("tenants", "hold", "t-2")

    async def work_until_half_done() -> None:
        app = App(world.url).app

        async def half_done(_: str) -> bool | None:
            info = await app.plan.get("up-7").info()
            return info.count(MemberState.COMPLETED) == 1 or None

        async with asyncio.timeout(60), app.running():
            await app.waiters.wait_for_plan("up-7", half_done)

    asyncio.run(work_until_half_done())
    assert world.json("plans", "show", "up-7")["status"] == PlanStatus.RUNNING
    rolling = world.json("plans", "rollback", "up-7", "--reason", "7 is broken")
    assert rolling["status"] == PlanStatus.ROLLING_BACK
    world.work_until_plan_rests("up-7")
    assert world.json("plans", "show", "up-7")["status"] == PlanStatus.ROLLED_BACK


def test_a_halted_plan_is_rolled_back_by_wave(world: World) -> None:
    halted(world)
    assert world.cli("plans", "rollback", "up-7", "--wave", "9").exit_code == Exit.INVALID
    rolling = world.json("plans", "rollback", "up-7", "--wave", "2", "--force")
    assert rolling["status"] == PlanStatus.ROLLING_BACK
    world.work_until_plan_rests("up-7")
    shown = world.json("plans", "show", "up-7")
    assert shown["status"] == PlanStatus.ROLLED_BACK
    assert shown["waves"][0]["counts"] == {"completed": 2}
    assert fits(world.cli("plans", "show", "up-7").stdout)


def test_retry_sets_the_failed_going(world: World) -> None:
    halted(world)
    assert world.json("plans", "retry", "up-7")["status"] == PlanStatus.RUNNING
    assert world.json("plans", "show", "up-7")["failedTotal"] == 0


# -- watching


def test_watch_says_a_line_for_each_change_and_ends_when_the_plan_rests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work = threading.Thread(target=world.work_until_plan_rests, args=("up-7",))
    looks = plan_commands.poll_plan

    async def looks_with_a_worker(session: Session, plan_id: str) -> AsyncIterator[PlanInfo]:
        async for told in looks(session, plan_id):
            yield told
            if at_work.ident is None:  # who begins before the first look may have ended by then
                at_work.start()

    monkeypatch.setattr(plan_commands, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(plan_commands, "poll_plan", looks_with_a_worker)
    world.plan("up-7", ONE_BROKEN, waves=("2", "50%", "100%"), max_concurrency=2)
    result = world.cli("plans", "watch", "up-7")
    at_work.join()
    assert result.exit_code == Exit.FAILED  # it waits for a person
    *before, last = result.stdout.splitlines()
    assert before
    assert f"{PlanStatus.HALTED}  " in last
    assert "wave 2 of 3" in last
    assert "1 failed: 1 of the 3 tasks of wave 2 have failed" in last
    said = [line[19:] for line in (*before, last)]  # behind the time
    assert len(said) == len(set(said))


def test_watch_ends_well_when_the_plan_does(world: World) -> None:
    world.plan("up-7", {"t-1": FINE})
    world.work_until_plan_rests("up-7")
    assert world.cli("plans", "watch", "up-7").exit_code == Exit.OK
    [line] = world.cli("plans", "watch", "up-7", "--json").stdout.splitlines()
    assert json.loads(line)["status"] == PlanStatus.COMPLETED


class Busy:
    """A store that signals all the time."""

    def __init__(self) -> None:
        self.plans = self
        self.looks = 0

    def ticket(self, _: object) -> int:
        return 0

    async def wait(self, *_: object, **__: object) -> None:
        await asyncio.sleep(0)

    async def load(self, _: Sequence[str]) -> list[Plan]:
        self.looks += 1
        made = {"id": "up-7", "total": 1, "digest": "", "waves": (1,), "counts": ({},)}
        times = {"created_at": 0.0, "status_since": 0.0, "updated_at": 0.0}
        return [Plan(**made, **times, status=PlanStatus.RUNNING)]  # type: ignore[arg-type]


async def test_watch_looks_once_a_second_at_most_however_fast_the_plan_moves() -> None:
    store, clock = Busy(), ManualClock()
    session = cast(Session, SimpleNamespace(store=store, clock=clock, now=clock.now()))
    looks = plan_commands.poll_plan(session, "up-7")
    await anext(looks)
    following = asyncio.ensure_future(cast(Any, anext(looks)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert store.looks == 1
    clock.advance(POLL_SECONDS)
    await following
    assert store.looks == 2


async def test_a_frame_of_the_live_view_fits_and_has_the_reason() -> None:
    [plan] = await Busy().load([])
    out = io.StringIO()
    told = info(plan, now=1.0)
    Console(file=out, width=80).print(plan_view.frame(told, 80))
    assert fits(out.getvalue())
    assert f"up-7  {PlanStatus.RUNNING}  wave 1 of 1" in out.getvalue()


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def test_on_a_terminal_it_is_a_live_view_and_ctrl_c_ends_it(
    world: World, terminal: tuple[int, int]
) -> None:
    world.plan("up-7", {"t-1": FINE})
    ours, theirs = terminal
    watching = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, "--store", world.url, "plans", "watch", "up-7"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    seen = b""
    try:
        while b"WAITING" not in seen:
            seen += os.read(ours, 4096)
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=60)
    finally:
        watching.kill()
    assert (watching.returncode, said.decode()) == (Exit.INTERRUPTED, NOBODY)
    assert PlanStatus.READY.encode() in seen


# -- making


@pytest.fixture
def tenants(tmp_path: Path) -> str:
    path = tmp_path / "tenants.txt"
    path.write_text("# ours\n" + "\n".join(TENANTS) + "\n\n")
    return str(path)


def creating(app_name: str, tenants: str, *more: str, payload: str = '"fine"') -> list[str]:
    made = ["plans", "create", app_name, "up-7", "--type", "tenant.upgrade"]
    return [*made, "--tenants", tenants, "--payload", payload, *more]


def test_create_makes_a_plan_that_workers_carry_out(
    world: World, app_name: str, tenants: str
) -> None:
    waves = ("--waves", "1,50%,100%", "--max-concurrency", "3", "--halt-on", "5%")
    result = world.cli(*creating(app_name, tenants, *waves, "--on-halt", "rollback"))
    assert result.stdout == f"up-7  {PlanStatus.READY}  10 tasks in 3 waves\n"
    assert "holdfast plans watch up-7" in result.stderr
    world.work_until_plan_rests("up-7")
    shown = world.json("plans", "show", "up-7")
    assert shown["status"] == PlanStatus.COMPLETED
    assert [wave["size"] for wave in shown["waves"]] == [1, 4, 5]
    assert shown["onHalt"] == "rollback"
    assert shown["haltOn"] == {"rule": "failure-rate", "rate": 0.05}


def test_create_takes_the_tenants_from_standard_input(world: World, app_name: str) -> None:
    result = world.cli(*creating(app_name, "-"), answer="t-1\nt-2\n")
    assert "2 tasks in 1 wave" in result.stdout


def test_the_same_create_again_goes_on_and_another_is_refused(
    world: World, app_name: str, tenants: str
) -> None:
    for _ in range(2):
        assert world.cli(*creating(app_name, tenants)).exit_code == Exit.OK
    assert world.json("stats")["byStatus"][Status.CREATED] == 10
    result = world.cli(*creating(app_name, tenants, payload='"other"'))
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.endswith("[plan-conflict]\n")


def test_a_dry_run_tells_waves_tenants_and_conflicts_and_writes_nothing(
    world: World, app_name: str, tenants: str
) -> None:
    world.failed(tenant="t-3")
    before = world.json("stats")
    args = creating(app_name, tenants, "--waves", "20%,100%", "--dry-run")
    told = world.json(*args)
    assert [wave["size"] for wave in told["waves"]] == [2, 8]
    assert told["waves"][0]["tenants"] == ["t-0", "t-1"]
    assert (told["busy"], told["exists"]) == (["t-3"], None)
    shown = world.cli(*args)
    assert fits(shown.stdout)
    assert "t-2, t-3, t-4, t-5 and 4 more" in shown.stdout
    assert "busy  1 tenant now, their tasks wait" in shown.stdout
    assert world.json("stats") == before
    assert world.json("plans", "list")["plans"] == []


def test_a_plan_that_would_be_refused_is_told_by_the_exit_code(
    world: World, app_name: str, tenants: str
) -> None:
    world.failed(tenant="t-3")
    args = creating(app_name, tenants, "--conflict", "reject")
    assert world.cli(*args, "--dry-run").exit_code == Exit.REFUSED
    result = world.cli(*args)
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.endswith("[tenants-busy]\n")


def test_a_dry_run_makes_no_store(world: World, app_name: str, tenants: str) -> None:
    result = world.cli(*creating(app_name, tenants, "--dry-run"))
    assert result.exit_code == Exit.STORE
    assert not world.path.exists()


@pytest.mark.parametrize(
    ("options", "payload", "told"),
    [
        (["--type", "nope"], '"x"', "it declares: mail.send, tenant.upgrade [invalid-input]"),
        ([], "{bad", "--payload: not JSON: "),
        ([], "7", "payload: Input should be a valid string [invalid-payload]"),
        (["--waves", "50%,10%,100%"], '"x"', "[invalid-plan]"),
        (
            ["--halt-on", "many"],
            '"x"',
            "--halt-on 'many': write a share such as 5%, or a number such as 3",
        ),
        (["--soak", "soon"], '"x"', "'soon' is not a duration"),
        (["--tenants", "nowhere.txt"], '"x"', "--tenants nowhere.txt: No such file"),
        (["--tenants", os.devnull], '"x"', "the file contains no tenant"),
    ],
)
def test_bad_input_is_refused_with_the_reason_before_anything_is_made(
    world: World, app_name: str, tenants: str, *, options: list[str], payload: str, told: str
) -> None:
    result = world.cli(*creating(app_name, tenants, *options, payload=payload))
    assert result.exit_code == Exit.INVALID
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_line_that_is_no_tenant_is_named(world: World, app_name: str) -> None:
    result = world.cli(*creating(app_name, "-"), answer="t-1\n\nno good name\n")
    assert "--tenants -, line 3: tenant 'no good name'" in result.stderr


def test_a_tenant_twice_needs_a_word(world: World, app_name: str) -> None:
    result = world.cli(*creating(app_name, "-"), answer="t-1\nt-1\n")
    assert result.exit_code == Exit.INVALID
    assert "tenants more than once: t-1" in result.stderr
    allowed = world.cli(*creating(app_name, "-", "--repeat-tenants"), answer="t-1\nt-1\n")
    assert allowed.exit_code == Exit.OK


def test_a_store_in_memory_takes_no_plan(world: World, app_name: str, tenants: str) -> None:
    result = world.cli("--store", "memory://", *creating(app_name, tenants))
    assert result.exit_code == Exit.INVALID


def test_the_tasks_of_a_plan_are_listed(world: World) -> None:
    halted(world)
    listed = json.loads(world.cli("tasks", "list", "--plan", "up-7", "--json").stdout)
    assert {task["planId"] for task in listed["tasks"]} == {"up-7"}
    assert len(listed["tasks"]) == len(TENANTS)


def test_the_doctor_tells_of_a_plan_that_waits_for_a_person_and_finds_no_fault(
    world: World,
) -> None:
    halted(world)
    result = world.cli("doctor", "--json")
    [told] = json.loads(result.stdout)["waiting"]
    assert told.startswith(f"plan up-7 is {PlanStatus.HALTED}: 1 of the ")
    assert json.loads(result.stdout)["stuck"] == []
