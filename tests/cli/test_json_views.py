"""The JSON of each command is a declared view, and its help lists the keys of that view."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.main import get_command

from holdfast.cli.commands import hooks as hook_commands
from holdfast.cli.root import cli
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.insight.views import (
    alerts,
    audit,
    bulk,
    health,
    operations,
    plans,
    queues,
    stats,
    tasks,
    tenants,
    triggers,
    workers,
)
from holdfast.insight.views.checkpoints import CheckpointState, checkpoint_keys
from holdfast.insight.views.view import keys
from holdfast.notify.signature import Secret
from holdfast.testing.contract.drivers.store_driver import beat
from tests.support.cli.world import App, World

COMMAND_LINE: Any = get_command(cli)


@dataclass(frozen=True)
class Shown:
    """A view, with the views inside its lists."""

    view: Any
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> str:
        return keys(self.view, **self.parts)


BATCH = Shown(tasks.BatchView, {"done": tasks.Asked, "refused": tasks.RefusedView})
PAGE = Shown(tasks.TaskPage, {"tasks": tasks.TaskView})
PLAN = Shown(plans.PlanView, {"waves": plans.WaveView})
BULK = Shown(bulk.BulkView)
TURNED = Shown(queues.SwitchesTurned, {"switches": queues.SwitchState})
STATE = Shown(CheckpointState)

VIEWS = {
    "alerts": Shown(alerts.ActiveAlerts, {"alerts": alerts.ActiveAlert}),
    "audit": Shown(audit.AuditList, {"entries": audit.AuditView}),
    "audit transitions": Shown(audit.TransitionList, {"transitions": audit.TransitionView}),
    "audit verify": Shown(audit.VerdictView),
    "backup": Shown(operations.BackupView),
    "bulk list": Shown(bulk.BulkPageView, {"bulks": bulk.BulkView}),
    "bulk pause": BULK,
    "bulk preview": Shown(bulk.BulkPreviewView, {"sample": bulk.SampleView}),
    "bulk resume": BULK,
    "bulk show": BULK,
    "bulk start": BULK,
    "bulk stop": BULK,
    "bulk watch": BULK,
    "checkpoints put": STATE,
    "checkpoints remove": STATE,
    "doctor": Shown(
        health.DoctorView,
        {
            "checks": health.CheckView,
            "findings": health.FindingView,
            "workers": workers.WorkerHealth,
        },
    ),
    "hooks list": Shown(operations.HookList, {"hooks": operations.HookView}),
    "hooks secret": Shown(operations.SecretView),
    "hooks test": Shown(operations.HookTested),
    "plans cancel": Shown(plans.PlanAsked),
    "plans create": PLAN,
    "plans list": Shown(plans.PlanPageView, {"plans": plans.PlanView}),
    "plans pause": Shown(plans.PlanAsked),
    "plans resume": Shown(plans.PlanAsked),
    "plans retry": Shown(plans.PlanRetryAsked),
    "plans rollback": Shown(plans.PlanAsked),
    "plans show": Shown(
        plans.PlanReportView, {"waves": plans.WaveView, "failed": plans.FailedMember}
    ),
    "plans watch": PLAN,
    "prune": Shown(operations.PruneView),
    "queues list": Shown(queues.QueueList, {"queues": queues.QueueView}),
    "queues pause": TURNED,
    "queues resume": TURNED,
    "stats": Shown(stats.StoreCounts, {"transitions": stats.MoveView, "holds": tenants.HoldView}),
    "suspended amend": BATCH,
    "suspended discard": BATCH,
    "suspended list": PAGE,
    "suspended resume": BATCH,
    "suspended show": Shown(tasks.TaskDetail),
    "tasks cancel": BATCH,
    "tasks list": PAGE,
    "tasks pause": BATCH,
    "tasks resume": BATCH,
    "tasks retry": BATCH,
    "tasks rollback": BATCH,
    "tasks show": Shown(tasks.TaskDetail),
    "tenants hold": Shown(tenants.HoldState),
    "tenants holds": Shown(tenants.HoldList, {"holds": tenants.HoldView}),
    "tenants release": Shown(tenants.ReleaseState),
    "tenants show": Shown(tenants.TenantStates, {"tenants": tenants.TenantState}),
    "tokens create": Shown(operations.TokenCreated),
    "tokens list": Shown(operations.TokenList, {"tokens": operations.TokenView}),
    "tokens revoke": Shown(operations.TokensRevoked, {"revoked": operations.TokenView}),
    "triggers add": Shown(triggers.TriggerView),
    "triggers cancel": Shown(triggers.TriggerState),
    "triggers fire": Shown(triggers.TriggerAsked),
    "triggers list": Shown(triggers.TriggerPageView, {"triggers": triggers.TriggerView}),
    "triggers next": Shown(triggers.NextTimesAndState),
    "triggers pause": Shown(triggers.TriggerState),
    "triggers resume": Shown(triggers.TriggerState),
    "triggers show": Shown(triggers.TriggerDetail),
    "why": Shown(tasks.WhyAnswer),
    "workers drain": Shown(workers.Drained),
    "workers list": Shown(workers.LiveWorkers, {"workers": workers.WorkerView}),
}
WITH_OPTION = {  # the other view of a command
    ("suspended list", "--group"): Shown(tasks.SuspendedGroups, {"groups": tasks.SuspendedGroup}),
    ("bulk start", "--dry-run"): VIEWS["bulk preview"],
    ("plans create", "--dry-run"): Shown(plans.PreviewView, {"waves": plans.WavePreviewView}),
}


def commands(name: str = "", command: Any = COMMAND_LINE) -> Iterator[tuple[str, Any]]:
    """Yield each command that has the option `--json`."""
    if any("--json" in param.opts for param in command.params):
        yield name, command
    for inner, below in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {inner}".strip(), below)


EPILOGS = {name: command.epilog for name, command in commands()}


def test_every_command_with_json_has_a_view() -> None:
    assert {*EPILOGS} == {*VIEWS, "checkpoints get"}


@pytest.mark.parametrize("name", VIEWS)
def test_the_help_of_a_command_lists_the_keys_of_its_view(name: str) -> None:
    told = EPILOGS[name].removeprefix("JSON: ").removeprefix("a line for each change, each: ")
    assert told.startswith(VIEWS[name].keys), told
    assert told.removeprefix(VIEWS[name].keys)[:1] in (".", " ", ";"), "it lists more keys"


@pytest.mark.parametrize(("name", "option"), WITH_OPTION)
def test_the_help_lists_the_keys_of_the_view_with_an_option(name: str, option: str) -> None:
    assert f"With {option}: {WITH_OPTION[name, option].keys}." in EPILOGS[name]


def test_the_help_lists_the_keys_of_a_checkpoint() -> None:
    assert checkpoint_keys() in EPILOGS["checkpoints get"]
    assert checkpoint_keys() == ", ".join(Checkpoint.__struct_encode_fields__)


class Walk:
    """Runs commands, and compares what they print with their views."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.walked: set[str] = set()

    def __call__(self, name: str, *args: str, view: Shown | None = None) -> Any:
        result = self.world.cli(*name.split(), *args, "--json")
        shown = view or VIEWS[name]
        first = result.stdout.splitlines()[0] if name.endswith("watch") else result.stdout
        assert first, f"{name}: {result.output} {result.exception}"
        TypeAdapter(shown.view).validate_json(first)
        self.walked.add(name)
        return json.loads(first)


@pytest.fixture
def walk(world: World) -> Walk:
    return Walk(world)


def test_what_a_command_prints_is_its_view(
    walk: Walk, app_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = walk.world
    failed, other = world.failed(tenant="t-1"), world.upgrade(tenant="t-2")
    _read(walk, failed, tmp_path)
    _act_on_tasks(walk, failed, other)
    _act_on_plans(walk, app_name, tmp_path)
    _act_on_triggers(walk, app_name)
    _act_on_bulks(walk)
    _act_on_tenants_queues_and_workers(walk)
    _use_files(walk, tmp_path, monkeypatch)
    assert walk.walked == {*VIEWS}


def _read(walk: Walk, failed: str, tmp_path: Path) -> None:
    for name in ("alerts", "stats", "doctor", "tasks list", "suspended list"):
        walk(name)
    walk("suspended list", "--group", view=WITH_OPTION["suspended list", "--group"])
    for name in ("why", "tasks show", "suspended show"):
        walk(name, failed)
    walk("prune", "--dry-run")
    walk("backup", str(tmp_path / "copy.db"))


def _act_on_tasks(walk: Walk, failed: str, other: str) -> None:
    checkpoint = walk.world.json("checkpoints", "get", failed)
    assert {*checkpoint} <= {*checkpoint_keys().split(", ")}
    walk("checkpoints put", failed, json.dumps(checkpoint))
    walk("checkpoints remove", failed)
    for name in ("pause", "resume", "retry", "rollback", "cancel"):
        walk(f"tasks {name}", other, failed)
    walk("suspended amend", failed, "--payload", '"fine"')
    for name in ("suspended resume", "suspended discard"):
        walk(name, failed)
    for name in ("audit", "audit transitions", "audit verify"):
        walk(name)


def _act_on_plans(walk: Walk, app_name: str, tmp_path: Path) -> None:
    (tmp_path / "tenants").write_text("t-3\nt-4\n")
    new = [app_name, "up-1", "--type", "tenant.upgrade", "--payload", '"broken"']
    new += ["--tenants", str(tmp_path / "tenants")]
    walk("plans create", *new, "--dry-run", view=WITH_OPTION["plans create", "--dry-run"])
    walk("plans create", *new)
    walk.world.work_until_plan_rests("up-1")
    walk("plans list")
    walk("plans show", "up-1")
    walk("plans show", "up-1", "--events", view=Shown(plans.PlanReportWithEvents))
    walk("plans watch", "up-1")
    for name in ("retry", "pause", "resume", "rollback"):
        walk(f"plans {name}", "up-1")
    walk("plans create", app_name, "up-2", *new[2:])
    walk("plans cancel", "up-2")


def _act_on_triggers(walk: Walk, app_name: str) -> None:
    about = ("--type", "mail.send", "--payload", '"a"', "--every", "1h")
    walk("triggers add", app_name, "nightly", *about)
    walk("triggers list")
    for name in ("show", "next", "pause", "resume"):
        walk(f"triggers {name}", "nightly")
    walk("triggers fire", "nightly", "--app", app_name)
    walk("triggers cancel", "nightly")


def _act_on_bulks(walk: Walk) -> None:
    walk("bulk preview", "retry", "--everything")
    walk("bulk start", "retry", "--everything", "--dry-run", view=VIEWS["bulk preview"])
    bulk_id = walk("bulk start", "retry", "--everything")["bulkId"]
    walk("bulk list")
    for name in ("show", "pause", "resume", "stop", "watch"):
        walk(f"bulk {name}", bulk_id)


def _act_on_tenants_queues_and_workers(walk: Walk) -> None:
    async def report(made: App) -> None:
        await made.app.store.tasks.renew(beat(), [], lease_seconds=30)

    walk.world.do(report)
    for name in ("workers list", "queues list"):
        walk(name)
    walk("workers drain", "w-1")
    for name in ("queues pause", "queues resume"):
        walk(name, "default")
    walk("tenants show", "t-1")
    walk("tenants hold", "t-1")
    walk("tenants holds")
    walk("tenants release", "t-1")


def _use_files(walk: Walk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ("--file", str(tmp_path / "tokens.json"))
    walk("tokens create", "ann", "--role", "viewer", *tokens)
    walk("tokens list", *tokens)
    walk("tokens revoke", "ann", *tokens)
    file = tmp_path / "hooks.toml"
    file.write_text(
        f'[hooks.chat]\nurl = "https://example.org/in"\nsecret = "{Secret.make()}"\n'
        'events = ["TaskCompleted"]\n'
    )
    monkeypatch.setenv("HOLDFAST_WEBHOOKS", str(file))
    monkeypatch.setattr(hook_commands, "WAIT_SECONDS", 0.0)
    walk("hooks list")
    walk("hooks secret")
    walk("hooks test", "chat")
