"""Hooks are told of the events they name: of tasks, plans and alerts, and of nothing else."""

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, FailureCount, Holdfast, Permanent, Retry
from holdfast.domain import notification
from holdfast.domain.task.events import KINDS
from holdfast.errors import InvalidSetting
from holdfast.testing.plugin import MakeEngine
from tests.support.notified_app import (
    HOOK_SECRET,
    SECRET,
    all_told,
    deliveries,
    hook,
    hooks_file,
    submit,
    telling_app,
    with_paths,
)
from tests.support.sinks.receiver import Receiver, answer

OUTCOMES = ["TaskCompleted", "TaskFailed", "TaskCancelled"]


async def test_a_hook_hears_what_it_named(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "TaskFailed", "StageFailed")})
    engine = holdfast_engine(app)
    await submit(app, "mail.send")
    await submit(app, "mail.lost")
    await engine.drain()
    said = all_told(receiver, engine, HOOK_SECRET)
    assert [one["type"] for one in said] == ["StageFailed", "TaskFailed"]
    assert {one["data"]["type"] for one in said} == {"mail.lost"}


async def test_filters_let_through_what_they_name(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    of = {
        "types": hook(receiver, *OUTCOMES, path="/types", types=["mail.send"]),
        "tenants": hook(receiver, *OUTCOMES, path="/tenants", tenants=["t-2"]),
        "queues": hook(receiver, *OUTCOMES, path="/queues", queues=["slow"]),
    }
    app = telling_app(tmp_path, hooks=of)
    engine = holdfast_engine(app)
    await submit(app, "mail.send", tenant="t-1")
    await submit(app, "mail.gone", tenant="t-2")
    await engine.drain()
    assert sorted(seen.path for seen in receiver.seen) == ["/tenants", "/types"]


async def test_results_are_told_only_where_that_was_asked_for(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    of = {
        "curt": hook(receiver, "TaskCompleted", path="/curt"),
        "full": hook(receiver, "TaskCompleted", path="/full", results=True),
    }
    app = telling_app(tmp_path, hooks=of)
    engine = holdfast_engine(app)
    await submit(app, "mail.send")
    await engine.drain()
    said = {path: one["data"] for path, one in with_paths(receiver, engine)}
    assert "result" not in said["/curt"]
    assert said["/full"]["result"] == "sent to you"


async def test_a_callback_and_a_hook_are_told_each(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "TaskCompleted", path="/hook")})
    engine = holdfast_engine(app)
    await submit(app, "mail.send", callback=receiver.url("/callback"))
    await engine.drain()
    assert sorted(seen.path for seen in receiver.seen) == ["/callback", "/hook"]


async def test_of_its_own_tasks_the_engine_tells_nobody(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(answer(500)) as receiver:
        every = sorted(notification.TELLABLE)
        app = telling_app(tmp_path, hooks={"ops": hook(receiver, *every)})
        engine = holdfast_engine(app)
        await submit(app, "mail.gone")
        await engine.drain()
        before = len(await deliveries(app))
        await engine.advance("1h")
        assert len(await deliveries(app)) == before


async def test_every_event_of_a_task_that_a_write_brings_can_be_named() -> None:
    of_the_store = {"TaskCreated", "TaskStarted", "TaskDue", "LeaseLost", "TaskProgress"}
    assert {name for name in KINDS if name not in notification.TELLABLE} == of_the_store


async def test_two_signatures_while_a_secret_is_changed(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    both = [HOOK_SECRET, SECRET]
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "TaskCompleted", secret=both)})
    engine = holdfast_engine(app)
    await submit(app, "mail.send")
    await engine.drain()
    for secret in both:
        assert len(all_told(receiver, engine, secret)) == 1


# -- plans


async def test_a_plan_that_halts_is_told(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "PlanHalted", "PlanCompleted")})

    @app.task("up", retry=Retry(max=1))
    async def up(ctx: Context) -> None:
        raise Permanent("no")

    @app.task("fine")
    async def fine(ctx: Context) -> None: ...

    engine = holdfast_engine(app)
    bad = [up.on(tenant=f"t-{n}") for n in range(4)]
    await app.plan("bad", bad, waves=("25%", "100%"), halt_on=FailureCount(0))
    await app.plan("good", [fine.on(tenant="t-9")])
    await engine.start()
    await engine.clock.elapse("10s")
    await receiver.got(2)
    await engine.drain()
    said = all_told(receiver, engine, HOOK_SECRET)
    found = {(one["type"], one["data"]["planId"]) for one in said}
    assert found == {("PlanHalted", "bad"), ("PlanCompleted", "good")}
    assert len(said) == 2


# -- the file


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"url": "https://example.com", "events": ["TaskDone"]}, "there is no 'TaskDone'"),
        ({"url": "https://example.com", "events": []}, "hooks.ops.events is empty"),
        ({"url": "http://example.com", "events": ["TaskFailed"]}, "hooks.ops.url"),
        ({"url": "https://10.0.0.1", "events": ["TaskFailed"]}, "hooks.ops.url"),
        ({"url": "https://example.com", "events": ["TaskFailed"], "secret": "short"}, "secret"),
        ({"url": "https://example.com", "events": ["TaskFailed"], "secret": []}, "secret"),
        ({"url": "https://example.com", "events": ["TaskFailed"], "tipes": ["x"]}, "tipes"),
        ({"events": ["TaskFailed"]}, "url"),
        (
            {"url": "https://example.com", "events": ["AlertRaised"], "types": ["x"]},
            "hooks.ops: a hook with types receives events of tasks only, never AlertRaised",
        ),
        (
            {"url": "https://example.com", "events": ["PlanHalted"], "tenants": ["t"]},
            "hooks.ops: a hook with tenants receives events of tasks only, never PlanHalted",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_place(
    tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    path = hooks_file(tmp_path, ops=given)
    with pytest.raises(InvalidSetting, match="HOLDFAST_WEBHOOKS") as refused:
        Holdfast("memory://", webhooks=path)
    assert says in str(refused.value)
    assert HOOK_SECRET not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="there is no such file"):
        Holdfast("memory://", webhooks=tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["webhook_allow", "callback_allow"])
def test_an_allowance_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"HOLDFAST_{name.upper()}"):
        Holdfast("memory://", **{name: ["10.0.0.0/99"]})  # type: ignore[arg-type]


def test_the_file_of_the_guide_is_good(tmp_path: Path) -> None:
    """And each of its hooks hears of all that it names."""
    guide = (Path(__file__).parents[2] / "docs/webhooks.md").read_text(encoding="utf-8")
    told = guide.partition("```toml\n")[2].partition("```")[0]
    path = tmp_path / "webhooks.toml"
    path.write_text(told.replace("whsec_...", HOOK_SECRET), encoding="utf-8")
    path.chmod(0o600)
    hooks = Holdfast("memory://", webhooks=path).hooks.hooks
    assert len(hooks) >= 2
    for one in hooks.values():
        of_no_task = one.events & notification.OF_NO_TASK
        assert all(map(one.wants, of_no_task))


def test_a_file_that_others_can_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = hooks_file(tmp_path)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING, "holdfast"):
        Holdfast("memory://", webhooks=path)
    assert "chmod 600" in caplog.text


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    app = Holdfast("memory://", webhooks=hooks_file(tmp_path))
    shown = repr((app.hooks, app.settings))
    assert SECRET.removeprefix("whsec_")[:20] not in shown


def test_the_guide_names_every_event() -> None:
    guide = (Path(__file__).parents[2] / "docs/webhooks.md").read_text(encoding="utf-8")
    events = guide.partition("## Events")[2].partition("##")[0]
    assert {name for name in notification.TELLABLE if f"`{name}`" not in events} == set()
