"""`holdfast hooks`: who is told of what, and whether it arrives."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

import typer

from holdfast.cli import options as opt
from holdfast.cli.output.printer import Row, hint, print_json, print_table, say
from holdfast.cli.session import Session, run
from holdfast.domain import names, notification
from holdfast.domain.errors import InvalidInput, NotDelivered, TaskNotFound
from holdfast.domain.notification import Hook
from holdfast.domain.task.events import TaskSnoozed, TaskStarted
from holdfast.domain.task.state import Status
from holdfast.insight.views.tasks import callback_view
from holdfast.notify import hooks as book
from holdfast.notify.hooks import FILE
from holdfast.notify.signature import Secret
from holdfast.settings import load

hooks = typer.Typer(help="List and test webhooks, and make their secrets.")

WAIT_SECONDS = 30.0
SHRINKS = {"EVENTS": 10, "ONLY": 10}


@hooks.callback()
def of_hooks() -> None:
    """List and test webhooks, and make their secrets."""


@hooks.command(
    "list",
    epilog="JSON: hooks (each: name, url, events, types, tenants, queues, results), callbacks.",
)
def listed(json: opt.Json = False) -> None:
    """List the configured hooks, with the hosts of their URLs. HOLDFAST_WEBHOOKS names the file."""
    found = book.load(load())
    shown = [_shape(hook) for hook in found.hooks.values()]
    if json:
        print_json({"hooks": shown, "callbacks": notification.CALLBACK in found.secrets})
        return
    print_table([_row(one) for one in shown], keep=2, shrinks=SHRINKS)
    if not shown:
        hint(f"no hook is configured; {FILE} names the file")
    if notification.CALLBACK not in found.secrets:
        hint("submissions may contain no callback URL: the file has no [callbacks] secret")


def _shape(hook: Hook) -> dict[str, Any]:
    return {
        "name": hook.name,
        "url": callback_view(hook.url),
        "events": sorted(hook.events),
        "types": sorted(hook.types),
        "tenants": sorted(hook.tenants),
        "queues": sorted(hook.queues),
        "results": hook.results,
    }


def _row(one: dict[str, Any]) -> Row:
    only = [
        f"{name} {', '.join(one[name])}" for name in ("types", "tenants", "queues") if one[name]
    ]
    return {
        "HOOK": one["name"],
        "URL": one["url"],
        "EVENTS": ", ".join(one["events"]),
        "ONLY": "; ".join(only) or "-",
    }


@hooks.command("test", epilog="JSON: taskId, status (of the delivery), delivered.")
def probe(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a hook.")],
    *,
    json: opt.Json = False,
) -> None:
    """Send a test message to a hook. It goes through the store and a worker; this waits 30 s."""

    async def send(session: Session) -> tuple[str, Status, str]:
        app = session.app
        hook = app.hooks.hooks.get(name)
        if hook is None:
            known = ", ".join(sorted(app.hooks.hooks)) or "none"
            raise InvalidInput(f"no hook {name} is configured; configured are: {known}")
        task_id = await app.notifier.probe(hook)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                await app.waiters.wait_for_rest(task_id)
        return task_id, *await _stands(session, task_id)

    task_id, status, why = run(context, send)
    delivered = status is Status.COMPLETED
    if json:
        print_json({"taskId": task_id, "status": status, "delivered": delivered})
    elif delivered:
        say(f"{name}  delivered")
    if not delivered:
        raise NotDelivered(f"{name} has not received the message: {why} (delivery {task_id})")


async def _stands(session: Session, task_id: str) -> tuple[Status, str]:
    """Return the state of the delivery, and why it has not arrived, as far as is known."""
    detail = await session.store.views.detail(task_id)
    if detail is None:
        raise TaskNotFound(task_id)
    task = detail.task
    if task.failure is not None:
        return task.status, task.failure.summary
    if any(isinstance(event, TaskSnoozed) for event in detail.events):
        return task.status, "it is put off: `holdfast tasks show` tells more"
    tried = any(isinstance(event, TaskStarted) for event in detail.events)
    return task.status, "it is under way" if tried else "no worker has taken it"


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
        text = _of_callbacks(None)
    elif tenant is not None:
        text = _of_callbacks(names.check("tenant", tenant))
    else:
        text = Secret.make()
    if json:
        print_json({"secret": text})
    else:
        say(text)


def _of_callbacks(tenant: str | None) -> str:
    known = book.load(load()).secrets_of(notification.CALLBACK, tenant)
    if not known:
        raise InvalidInput(f"{FILE} names no file with a [callbacks] secret")
    return known[0].text()
