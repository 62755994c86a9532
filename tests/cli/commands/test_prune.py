"""`holdfast prune`."""

from typing import Any

import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.domain.audit import Audit
from holdfast.domain.errors import StoreFull, StoreUnavailable
from holdfast.ports import Kept
from holdfast.stores.sqlite.admin.store import SqliteAdmin
from tests.support.cli.world import World


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
