"""`holdfast hooks`: who is told of what, and whether it arrives."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli.commands import hooks as module
from holdfast.cli.exit_codes import Exit
from holdfast.notify.signature import Secret
from holdfast.ports import Peek, Topic
from holdfast.runtime.waiters import Waiters
from tests.support.cli.world import World
from tests.support.notified_app import FILE_SECRET, HOOK_SECRET, SECRET, hooks_file
from tests.support.sinks.receiver import Behaviour, Receiver, answer


@contextmanager
def elsewhere(world: World, behaviour: Behaviour, path: Path) -> Iterator[Receiver]:
    """A receiver and a worker in a thread of their own, as the command is in this one."""
    made, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    found: list[Receiver] = []

    async def whole() -> None:
        async with Receiver(behaviour) as receiver:
            found.append(receiver)
            hooks_file(path.parent, ops={"url": receiver.url("/x?t=1"), "events": ["TaskFailed"]})
            app = Holdfast(
                world.url, webhooks=path, webhook_allow=["127.0.0.1"], webhook_timeout=30
            )
            async with app.running(workers=1):
                made.set()
                await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(whole(),))
    thread.start()
    assert made.wait(60)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        loop.close()


async def time_is_up(waiters: Waiters, task_id: str) -> Peek:
    """As soon as the receiver has said no once, however long that takes."""
    store = waiters._store
    while True:
        detail = await store.views.detail(task_id)
        if detail is not None and detail.task.failure is not None:
            raise TimeoutError
        await store.wait(Topic.RESTED, store.ticket(Topic.RESTED), timeout=0.05)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = hooks_file(tmp_path)
    monkeypatch.setattr(module, "WAIT_SECONDS", 120.0)
    monkeypatch.setenv("HOLDFAST_WEBHOOKS", str(found))
    monkeypatch.setenv("HOLDFAST_WEBHOOK_ALLOW", "127.0.0.1")
    return found


def test_a_url_that_is_refused_names_the_setting_that_allows_it(world: World, path: Path) -> None:
    for url in ("http://a.example/", "https://localhost/", "https://10.0.0.1/"):
        hooks_file(path.parent, ops={"url": url, "events": ["TaskFailed"]})
        told = world.cli("hooks", "list")
        assert told.exit_code == Exit.INVALID
        assert "allowed in HOLDFAST_WEBHOOK_ALLOW" in told.stderr


def test_they_are_listed_without_secrets(world: World, path: Path) -> None:
    url = "https://hooks.example.com/told?token=abc"
    hooks_file(path.parent, ops={"url": url, "events": ["TaskFailed"], "types": ["mail.send"]})
    listed = world.json("hooks", "list")
    [hook] = listed["hooks"]
    assert (hook["name"], hook["url"]) == ("ops", "https://hooks.example.com/…")
    assert (hook["events"], hook["types"]) == (["TaskFailed"], ["mail.send"])
    assert listed["callbacks"] is True
    shown = world.cli("hooks", "list").output
    assert "types mail.send" in shown
    for secret in (FILE_SECRET, HOOK_SECRET, "token=abc"):
        assert secret not in shown


def test_where_a_hook_goes_is_seen_in_80_columns(world: World, path: Path) -> None:
    events = ["TaskFailed", "TaskCancelled", "TaskCompleted", "TaskRolledBack"]
    hook = {"url": "https://hooks.example.com/told", "events": events, "types": ["mail.send"]}
    hooks_file(path.parent, **{"on-call": hook})
    head, line = world.cli("hooks", "list").stdout.splitlines()
    assert max(len(head), len(line)) <= 80
    assert head.split() == ["HOOK", "URL", "EVENTS", "ONLY"]
    assert line.split()[:2] == ["on-call", "https://hooks.example.com/…"]
    assert "TaskCancelled" in line
    assert "types mai" in line


def test_without_a_file_it_says_how(world: World) -> None:
    assert "HOLDFAST_WEBHOOKS" in world.cli("hooks", "list").output


def test_a_new_secret_can_be_used(world: World) -> None:
    Secret.parse(world.cli("hooks", "secret").stdout.strip())
    Secret.parse(world.json("hooks", "secret")["secret"])


def test_a_tenant_gets_the_secret_of_its_callbacks(world: World, path: Path) -> None:
    told = world.cli("hooks", "secret", "--tenant", "t-1").stdout.strip()
    assert told == Secret.parse(FILE_SECRET).derive("t-1").text()
    assert told == world.json("hooks", "secret", "--tenant", "t-1")["secret"]
    assert world.cli("hooks", "secret", "--no-tenant").stdout.strip() == SECRET
    both = world.cli("hooks", "secret", "--no-tenant", "--tenant", "t-1")
    assert both.exit_code == Exit.INVALID


def test_without_a_file_no_tenant_has_a_secret(world: World) -> None:
    assert world.cli("hooks", "secret", "--tenant", "t-1").exit_code == Exit.INVALID


def test_a_probe_goes_the_way_of_all_others(world: World, path: Path) -> None:
    with elsewhere(world, answer(200), path) as receiver:
        told = world.cli("hooks", "test", "ops")
        assert told.output == "ops  delivered\n"
        assert b'"type":"Probe"' in receiver.seen[0].body


def test_a_probe_that_does_not_arrive_is_an_error(world: World, path: Path) -> None:
    with elsewhere(world, answer(410), path):
        told = world.cli("hooks", "test", "ops")
    assert told.exit_code != 0
    assert "answered 410" in told.output


def test_a_probe_that_was_refused_when_the_time_is_up_says_why(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Waiters, "wait_until_stopped", time_is_up)
    with elsewhere(world, answer(503), path):
        told = world.cli("hooks", "test", "ops")
    assert told.exit_code == Exit.FAILED
    assert "answered 503" in told.output


def test_a_probe_that_nobody_has_taken_in_time_says_so(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 1.0)
    hooks_file(path.parent, ops={"url": "http://127.0.0.1:9/", "events": ["TaskFailed"]})
    world.send()
    told = world.cli("hooks", "test", "ops")
    assert told.exit_code == Exit.FAILED
    assert "no worker has claimed it" in told.output


def test_a_hook_that_is_not_there_is_named(world: World, path: Path) -> None:
    world.send()
    told = world.cli("hooks", "test", "nobody")
    assert told.exit_code == Exit.INVALID
    assert "no hook nobody" in told.output
