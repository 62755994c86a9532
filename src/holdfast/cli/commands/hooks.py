"""`holdfast hooks` lists and tests webhooks, and makes their secrets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

import typer

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_answer, print_json, print_list, say
from holdfast.cli.session import Session, in_session
from holdfast.domain import names, notification
from holdfast.domain.errors import InvalidInput, NotDelivered
from holdfast.domain.notification import Hook
from holdfast.domain.task.events import TaskSnoozed, TaskStarted
from holdfast.domain.task.state import Status
from holdfast.insight.views.tasks import callback_view
from holdfast.notify import hooks as hooks_file
from holdfast.notify.hooks import FILE
from holdfast.notify.signature import Secret
from holdfast.settings import load

hooks = typer.Typer(help="List and test webhooks, and make their secrets.")

WAIT_SECONDS = 30.0
SHRINKS = {"EVENTS": 10, "ONLY": 10}


@hooks.command(
    "list",
    epilog="JSON: hooks (each: name, url, events, types, tenants, queues, results), callbacks.",
)
def list_hooks(json: opt.Json = False) -> None:
    """List the configured hooks, with the hosts of their URLs. HOLDFAST_WEBHOOKS names the file."""
    configured = hooks_file.load(load())
    views = [_view(hook) for hook in configured.hooks.values()]
    has_callbacks = notification.CALLBACK in configured.secrets
    print_list(
        "hooks",
        views,
        [_row(view) for view in views],
        json=json,
        empty=f"no hook is configured; {FILE} names the file",
        keep=2,
        shrinks=SHRINKS,
        callbacks=has_callbacks,
    )
    if not has_callbacks and not json:
        hint("submissions may contain no callback URL: the file has no [callbacks] secret")


def _view(hook: Hook) -> dict[str, Any]:
    return {
        "name": hook.name,
        "url": callback_view(hook.url),
        "events": sorted(hook.events),
        "types": sorted(hook.types),
        "tenants": sorted(hook.tenants),
        "queues": sorted(hook.queues),
        "results": hook.results,
    }


def _row(view: dict[str, Any]) -> Row:
    only = [
        f"{name} {', '.join(view[name])}" for name in ("types", "tenants", "queues") if view[name]
    ]
    return {
        "HOOK": view["name"],
        "URL": view["url"],
        "EVENTS": ", ".join(view["events"]),
        "ONLY": "; ".join(only) or "-",
    }


@hooks.command("test", epilog="JSON: taskId, status (of the delivery), delivered.")
@in_session
async def probe(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a hook.")],
    *,
    json: opt.Json = False,
) -> None:
    """Send a test message to a hook, through the store and a worker. The command waits for 30 s."""
    app = session.app
    hook = app.hooks.hooks.get(name)
    if hook is None:
        known = ", ".join(sorted(app.hooks.hooks)) or "none"
        raise InvalidInput(f"no hook {name} is configured; configured are: {known}")
    task_id = await app.notifier.probe(hook)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            await app.waiters.wait_until_stopped(task_id)
    status, why = await _load_state(session, task_id)
    delivered = status is Status.COMPLETED
    if json:
        print_json({"taskId": task_id, "status": status, "delivered": delivered})
    elif delivered:
        say(f"{name}  delivered")
    if not delivered:
        raise NotDelivered(f"{name} has not received the message: {why} (delivery {task_id})")


async def _load_state(session: Session, task_id: str) -> tuple[Status, str]:
    """Return the status of the delivery, and why it has not arrived, as far as is known."""
    detail = await session.load_detail(task_id)
    task = detail.task
    if task.failure is not None:
        return task.status, task.failure.summary
    if any(isinstance(event, TaskSnoozed) for event in detail.events):
        return task.status, "it is put off: `holdfast tasks show` says why"
    started = any(isinstance(event, TaskStarted) for event in detail.events)
    return task.status, "it is under way" if started else "no worker has claimed it"


@hooks.command(epilog="JSON: secret.")
def secret(
    *,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Print the secret of this tenant's callbacks instead."),
    ] = None,
    no_tenant: Annotated[
        bool,
        typer.Option("--no-tenant", help="Print the secret for tasks without a tenant instead."),
    ] = False,
    json: opt.Json = False,
) -> None:
    """Print a new secret for a hook or for callbacks. Holdfast does not store it."""
    if tenant is not None and no_tenant:
        raise InvalidInput("give --tenant or --no-tenant, not both")
    if no_tenant:
        text = _callback_secret(None)
    elif tenant is not None:
        text = _callback_secret(names.check("tenant", tenant))
    else:
        text = Secret.make()
    print_answer({"secret": text}, text, json=json)


def _callback_secret(tenant: str | None) -> str:
    known = hooks_file.load(load()).secrets_of(notification.CALLBACK, tenant)
    if not known:
        raise InvalidInput(f"{FILE} names no file with a [callbacks] secret")
    return known[0].text()
