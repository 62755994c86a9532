"""An app that tells of its tasks, to a receiver of the test."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Context, Filter, Handle, Holdfast, Permanent, Retry
from holdfast.domain import notification
from holdfast.domain.task.task import Task
from holdfast.notify.signature import Secret, verify
from holdfast.testing import Engine
from tests.support.sinks.receiver import Receiver, Seen

FILE_SECRET = Secret.make()  # of callbacks, as the file has it
SECRET = Secret.parse(FILE_SECRET).derive(None).text()  # of those without a tenant
HOOK_SECRET = Secret.make()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


def hooks_file(folder: Path, **hooks: dict[str, Any]) -> Path:
    """Write a hooks file with a secret for callbacks and, unless given otherwise, for each hook."""
    lines = ["[callbacks]", f"secret = {json.dumps(FILE_SECRET)}"]
    for name, given in hooks.items():
        lines.append(f"[hooks.{name}]")
        fields = {"secret": HOOK_SECRET} | given
        lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    path = folder / "webhooks.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def telling_app(folder: Path, store: str = "memory://", **options: Any) -> Holdfast:
    """``hooks={name: {…}}``; whatever else is a setting."""
    path = hooks_file(folder, **options.pop("hooks", {}))
    here: dict[str, Any] = {"webhook_allow": ["127.0.0.1"], "callback_allow": ["127.0.0.1"]}
    patient = {"webhook_timeout": 30.0}  # the longest: who stands still is not asked twice for it
    app = Holdfast(store, webhooks=path, **here | patient | options)

    @app.task("mail.send")
    async def send(ctx: Context, to: str) -> str:
        return f"sent to {to}"

    @app.task("mail.gone", keep=0)
    async def send_and_forget(ctx: Context, to: str) -> str:
        return f"sent to {to}"

    lost = {"still": True}

    @app.task("mail.lost", retry=Retry(max=1))
    async def lose(ctx: Context, to: str) -> str:
        if lost["still"]:
            lost["still"] = False
            raise Permanent(f"no such box: {to}, password=hunter2")
        return f"sent to {to} after all"

    return app


async def submit(app: Holdfast, name: str, payload: Any = "you", **terms: Any) -> Handle[Any]:
    declared = app.registry.find(name)
    assert declared is not None
    return await app.submit(declared, payload, **terms)


def told(seen: Seen, secret: str = SECRET, *, now: float | None = None) -> dict[str, Any]:
    """Return the message that a receiver has seen, if its signature is good."""
    verify(secret, seen.headers, seen.body, now=now)
    found: dict[str, Any] = msgspec.json.decode(seen.body)
    return found


def all_told(receiver: Receiver, engine: Engine, secret: str = SECRET) -> list[dict[str, Any]]:
    return [told(seen, secret, now=engine.clock.now()) for seen in receiver.seen]


async def deliveries(app: Holdfast) -> list[Task]:
    """The oldest first."""
    page = await app.store.views.find(Filter(type=notification.TYPE), limit=100)
    return sorted(page.tasks, key=lambda task: task.order)


async def payload_of(app: Holdfast, task_id: str) -> bytes:
    detail = await app.store.views.detail(task_id)
    assert detail is not None
    return detail.payload


def hook(receiver: Receiver, *events: str, path: str = "/", **more: Any) -> dict[str, Any]:
    return {"url": receiver.url(path), "events": list(events), **more}


def with_paths(receiver: Receiver, engine: Engine) -> list[tuple[str, dict[str, Any]]]:
    """Return the messages to hooks, each with its path."""
    said = all_told(receiver, engine, HOOK_SECRET)
    return [(seen.path, one) for seen, one in zip(receiver.seen, said, strict=True)]
