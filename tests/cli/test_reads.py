"""Tenants, health, counts, who did what, and cleaning up."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.cli.output.printer import PIPE_WIDTH
from holdfast.domain.audit import Audit
from holdfast.domain.errors import StoreFull, StoreUnavailable
from holdfast.domain.phrases import count, format_names, span
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By
from holdfast.ports import Beat, Check, Kept
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.admin.store import SqliteAdmin
from tests.support.cli.world import App, World


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
        await made.app.store.tasks.renew(beat_of("w-1"), [], lease_seconds=30)
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
        await made.app.store.tasks.renew(beat_of("w-1"), [], lease_seconds=30)

    world.do(beat)
    assert "1 live, 0 of 2 slots busy: w-1 (last seen " in world.cli("doctor").stdout


def beat_of(worker: str) -> Beat:
    return Beat(
        worker=worker,
        host="here",
        pid=1,
        types=("mail.send",),
        queues=("default",),
        slots=2,
        running=0,
        started_at=0.0,
    )


def test_stats_count_tasks_moves_and_refusals(world: World) -> None:
    done = world.send()
    world.work_until_rested(done)
    world.failed()
    world.cli("tasks", "pause", done)
    stats = world.json("stats")
    assert stats["byStatus"][Status.COMPLETED] == 1
    assert stats["byQueue"]["default"]["parked"] == 1
    assert stats["refused"] == {f"{Status.COMPLETED} pause": 1}
    moved = {(move["from"], move["to"]): move["count"] for move in stats["transitions"]}
    assert moved[Status.RUNNING, Status.COMPLETED] == 1
    told = world.cli("stats").stdout
    assert max(map(len, told.splitlines())) <= 80
    assert f"{Status.COMPLETED} pause" in told


def test_stats_say_when_the_store_is_not_durable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send()
    assert "durable" not in world.cli("stats").stdout
    monkeypatch.setattr(SqliteStore, "durable", False)
    assert "durable  NO: a crash may lose tasks" in world.cli("stats").stdout


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


def test_a_backup_is_a_store_and_is_written_down(world: World, tmp_path: Path) -> None:
    task_id, copy = world.upgrade(tenant="t-1"), tmp_path / "copy.db"
    told = world.json("backup", str(copy), "--reason", "before the upgrade")
    assert told == {"path": str(copy), "sizeBytes": copy.stat().st_size}
    assert world.cli("--store", f"sqlite:///{copy}", "tasks", "show", task_id).exit_code == Exit.OK
    [entry] = world.json("audit")["entries"]
    assert (entry["command"], entry["taskId"]) == ("backup", "store")
    assert entry["reason"] == "before the upgrade"
    again = world.cli("backup", str(copy))
    assert again.exit_code == Exit.REFUSED
    assert "[backup-refused]" in again.stderr


def test_a_dry_run_counts_and_deletes_nothing(world: World) -> None:
    task_id = world.upgrade(tenant="t-1")
    world.cli("tasks", "pause", task_id)
    args = ("prune", "--kind", "audit", "--older-than", "0s")
    assert world.json(*args, "--dry-run")["pruned"] == {Kept.AUDIT: 1}
    assert world.json(*args, "--dry-run")["pruned"] == {Kept.AUDIT: 1}
    assert world.json(*args)["pruned"] == {Kept.AUDIT: 1}


def test_prune_goes_below_keep_only_when_told_to_and_says_so(world: World) -> None:
    world.work_until_rested(world.send(), world.send())
    args = ("prune", "--kind", "tasks", "--older-than", "0s")
    assert world.json(*args)["pruned"] == {Kept.TASKS: 0}
    counted = world.json(*args, "--ignore-keep", "--dry-run")
    assert (counted["pruned"], counted["ignoreKeep"]) == ({Kept.TASKS: 2}, True)
    assert world.json("audit")["entries"][0]["after"] == "older than 0s: tasks 0"
    assert world.json(*args, "--ignore-keep")["pruned"] == {Kept.TASKS: 2}
    assert world.json("audit")["entries"][0]["after"] == "older than 0s, ignoring keep: tasks 2"
    assert world.json("tasks", "list")["tasks"] == []
    assert "whatever their own retention" in world.cli(*args, "--ignore-keep").stderr


def test_the_audit_is_pruned_only_by_name_and_never_without_a_trace(world: World) -> None:
    world.cli("tasks", "pause", world.upgrade(tenant="t-1"))
    world.json("prune", "--older-than", "0s", "--dry-run")
    assert Kept.AUDIT not in world.json("prune", "--older-than", "0s")["pruned"]
    [bare, pause] = world.json("audit")["entries"]
    assert (pause["command"], bare["command"], bare["taskId"]) == ("pause", "prune", "store")
    assert bare["actor"].startswith("cli:")
    assert "older than 0s: tasks 0, " in bare["after"]
    assert Kept.AUDIT not in bare["after"]
    world.json("prune", "--older-than", "0s", "--kind", "audit")
    [named] = world.json("audit")["entries"]
    assert named["after"] == "older than 0s: audit 2"
    assert world.cli("audit", "verify").exit_code == Exit.OK


def test_a_prune_that_breaks_off_says_in_the_audit_what_it_had_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cli("tasks", "pause", world.upgrade(tenant="t-1"))
    real = SqliteAdmin.prune

    async def breaks(part: SqliteAdmin, kind: Kept, **terms: Any) -> int:
        if kind is Kept.WORKERS:
            raise StoreUnavailable("gone")
        return await real(part, kind, **terms)

    monkeypatch.setattr(SqliteAdmin, "prune", breaks)
    args = ("prune", "--kind", "audit", "--kind", "workers", "--older-than", "0s")
    assert world.cli(*args).exit_code == Exit.STORE
    [entry] = world.json("audit")["entries"]
    assert entry["after"] == "older than 0s: audit 1, workers 0"


def test_a_prune_that_makes_too_little_room_to_be_written_down_says_what_it_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send()

    async def full(part: SqliteAdmin, entry: Audit) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(SqliteAdmin, "audit", full)
    told = world.cli("prune", "--kind", "tasks", "--older-than", "0s")
    assert told.exit_code == Exit.STORE
    assert "deleted (older than 0s: tasks 0), but the audit does not say so: no room" in told.stderr


def test_prune_touches_nothing_unsettled(world: World) -> None:
    world.failed(tenant="t-1")
    report = world.json("prune", "--older-than", "0s")
    assert set(report["pruned"]) == set(Kept) - {Kept.AUDIT}
    assert report["pruned"][Kept.TASKS] == 0
    assert report["pruned"][Kept.CHECKPOINTS] == 0
    assert len(world.json("suspended", "list")["tasks"]) == 1


def test_prune_refuses_what_is_no_age_or_kind(world: World) -> None:
    world.send()
    assert world.cli("prune", "--older-than", "soon").exit_code == Exit.INVALID
    assert world.cli("prune", "--kind", "dust").exit_code == Exit.USAGE
    assert "WOULD DELETE" in world.cli("prune", "--dry-run").stdout


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-3, "0s"), (0.04, "0s"), (0.25, "0.2s"), (12.4, "12s"), (90, "1m30s"), (93_784, "1d2h")],
)
def test_times_are_said_in_two_units(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_long_rows_of_names_are_cut_short() -> None:
    assert format_names(["a", "b"]) == "a, b"
    assert format_names(list("abcde")) == "a, b, c and 2 more"
    assert (count(1, "task"), count(2, "task")) == ("1 task", "2 tasks")
